/* torch_opcodes.h - the opcodes of pickles that torch.save writes for tensors, as in Python's Lib/pickletools.py. */
#ifndef PS_WEIGHTS_TORCH_OPCODES_H
#define PS_WEIGHTS_TORCH_OPCODES_H

/* XX(name, code) */
#define TORCH_OPCODES(XX)                                                                                              \
    XX(PROTO, 0x80)                                                                                                    \
    XX(FRAME, 0x95)                                                                                                    \
    XX(STOP, '.')                                                                                                      \
    XX(MARK, '(')                                                                                                      \
    XX(NONE, 'N')                                                                                                      \
    XX(NEWTRUE, 0x88)                                                                                                  \
    XX(NEWFALSE, 0x89)                                                                                                 \
    XX(BININT, 'J')                                                                                                    \
    XX(BININT1, 'K')                                                                                                   \
    XX(BININT2, 'M')                                                                                                   \
    XX(LONG1, 0x8a)                                                                                                    \
    XX(BINFLOAT, 'G')                                                                                                  \
    XX(BINUNICODE, 'X')                                                                                                \
    XX(SHORT_BINUNICODE, 0x8c)                                                                                         \
    XX(EMPTY_TUPLE, ')')                                                                                               \
    XX(TUPLE, 't')                                                                                                     \
    XX(TUPLE1, 0x85)                                                                                                   \
    XX(TUPLE2, 0x86)                                                                                                   \
    XX(TUPLE3, 0x87)                                                                                                   \
    XX(EMPTY_LIST, ']')                                                                                                \
    XX(APPEND, 'a')                                                                                                    \
    XX(APPENDS, 'e')                                                                                                   \
    XX(EMPTY_DICT, '}')                                                                                                \
    XX(SETITEM, 's')                                                                                                   \
    XX(SETITEMS, 'u')                                                                                                  \
    XX(BINPUT, 'q')                                                                                                    \
    XX(LONG_BINPUT, 'r')                                                                                               \
    XX(MEMOIZE, 0x94)                                                                                                  \
    XX(BINGET, 'h')                                                                                                    \
    XX(LONG_BINGET, 'j')                                                                                               \
    XX(GLOBAL, 'c')                                                                                                    \
    XX(STACK_GLOBAL, 0x93)                                                                                             \
    XX(REDUCE, 'R')                                                                                                    \
    XX(BUILD, 'b')                                                                                                     \
    XX(BINPERSID, 'Q')

typedef enum torch_opcode {
#define XX(name, code) TORCH_OP_##name = (code),
    TORCH_OPCODES(XX)
#undef XX
} torch_opcode;

#endif

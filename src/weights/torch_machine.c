#include "weights/torch_machine.h"

#include <string.h>

#include "base/base.h"
#include "base/mem.h"
#include "weights/torch_opcodes.h"

#define STACK_MARK (-1)
/* torch.save pushes 1000 entries of a dictionary before it adds them. */
#define STACK_MAX ((int64_t)1 << 16)
/* A tensor needs about 15. */
#define VALUES_MAX ((int64_t)1 << 22)

static const struct {
    const char *module, *name;
    int global;
} globals[] = {
    {"collections", "OrderedDict", TORCH_ORDERED_DICT},
    {"torch._utils", "_rebuild_tensor_v2", TORCH_REBUILD_TENSOR},
    {"torch._utils", "_rebuild_parameter", TORCH_REBUILD_PARAMETER},
    {"torch", "Size", TORCH_SIZE},
    {"__builtin__", "set", TORCH_SET},
    {"builtins", "set", TORCH_SET},
    {"torch", "DoubleStorage", TORCH_STORAGE_TYPE + PS_SAFETENSORS_F64},
    {"torch", "FloatStorage", TORCH_STORAGE_TYPE + PS_SAFETENSORS_F32},
    {"torch", "HalfStorage", TORCH_STORAGE_TYPE + PS_SAFETENSORS_F16},
    {"torch", "BFloat16Storage", TORCH_STORAGE_TYPE + PS_SAFETENSORS_BF16},
    {"torch", "LongStorage", TORCH_STORAGE_TYPE + PS_SAFETENSORS_I64},
    {"torch", "IntStorage", TORCH_STORAGE_TYPE + PS_SAFETENSORS_I32},
    {"torch", "ShortStorage", TORCH_STORAGE_TYPE + PS_SAFETENSORS_I16},
    {"torch", "CharStorage", TORCH_STORAGE_TYPE + PS_SAFETENSORS_I8},
    {"torch", "ByteStorage", TORCH_STORAGE_TYPE + PS_SAFETENSORS_U8},
    {"torch", "BoolStorage", TORCH_STORAGE_TYPE + PS_SAFETENSORS_BOOL},
};

bool torch_global_name(int global, const char **module, const char **name)
{
    for (size_t i = 0; i < PS_ARRAY_LEN(globals); i++) {
        if (globals[i].global != global) continue;
        *module = globals[i].module;
        *name = globals[i].name;
        return true;
    }
    return false;
}

/* ---- bytes ---- */

static ps_status take(torch_machine *m, uint64_t n, const uint8_t **out)
{
    if (n > (uint64_t)(m->n_data - m->at))
        return PS_FAIL(PS_EFORMAT, "%s: data.pkl: offset %lld: %llu bytes wanted, but it ends at %lld", m->path,
                       (long long)m->at, (unsigned long long)n, (long long)m->n_data);
    *out = m->data + m->at;
    m->at += (int64_t)n;
    return PS_OK;
}

/* An unsigned number of n <= 8 bytes, little-endian. */
static ps_status take_number(torch_machine *m, int n, uint64_t *out)
{
    const uint8_t *b = NULL;
    PS_TRY(take(m, (uint64_t)n, &b));
    *out = 0;
    for (int i = 0; i < n; i++) *out |= (uint64_t)b[i] << 8 * i;
    return PS_OK;
}

/* Text up to the next line feed, which is skipped. */
static ps_status take_line(torch_machine *m, const char **out, size_t *n)
{
    const uint8_t *begin = m->data + m->at, *end = memchr(begin, '\n', (size_t)(m->n_data - m->at));
    if (end == NULL)
        return PS_FAIL(PS_EFORMAT, "%s: data.pkl: offset %lld: a name without its end", m->path, (long long)m->at);
    *out = (const char *)begin;
    *n = (size_t)(end - begin);
    m->at += (int64_t)*n + 1;
    return PS_OK;
}

/* ---- values, stack, items ---- */

/* PS_EFORMAT about the last opcode. */
static ps_status fail_here(const torch_machine *m, const char *what)
{
    return PS_FAIL(PS_EFORMAT, "%s: data.pkl: offset %lld: %s", m->path, (long long)m->at, what);
}

static ps_status push(torch_machine *m, int32_t value)
{
    if (m->n_stack == STACK_MAX) return fail_here(m, "more than 65536 values on the stack");
    PS_TRY(ps_mem_reserve(&m->stack, (size_t)m->n_stack + 1, sizeof *m->stack));
    m->stack[m->n_stack++] = value;
    return PS_OK;
}

static ps_status new_value(torch_machine *m, torch_value v)
{
    if (m->n_values == VALUES_MAX) return fail_here(m, "more than 4194304 values");
    PS_TRY(ps_mem_reserve(&m->values, (size_t)m->n_values + 1, sizeof *m->values));
    m->values[m->n_values] = v;
    return push(m, (int32_t)m->n_values++);
}

static ps_status new_items(torch_machine *m, torch_kind kind)
{
    return new_value(m, (torch_value){.kind = kind, .items = {.first = -1, .last = -1}});
}

static ps_status pop(torch_machine *m, int32_t *out)
{
    if (m->n_stack == 0 || m->stack[m->n_stack - 1] == STACK_MARK) return fail_here(m, "the stack is empty");
    *out = m->stack[--m->n_stack];
    return PS_OK;
}

/* The top value, of the required kind; it stays on the stack. */
static ps_status top(const torch_machine *m, torch_kind kind, int32_t *out)
{
    if (m->n_stack == 0 || m->stack[m->n_stack - 1] == STACK_MARK || m->values[m->stack[m->n_stack - 1]].kind != kind)
        return fail_here(m, kind == TORCH_LIST ? "the stack has no list here" : "the stack has no dictionary here");
    *out = m->stack[m->n_stack - 1];
    return PS_OK;
}

static ps_status append(torch_machine *m, int32_t container, int32_t value)
{
    PS_TRY(ps_mem_reserve(&m->cells, (size_t)m->n_cells + 1, sizeof *m->cells));
    torch_items *items = &m->values[container].items;
    const int32_t cell = (int32_t)m->n_cells++;
    m->cells[cell] = (torch_cell){.value = value, .next = -1};
    if (items->last >= 0)
        m->cells[items->last].next = cell;
    else
        items->first = cell;
    items->last = cell;
    items->n++;
    return PS_OK;
}

/* Stack index of the value above the last mark. */
static ps_status find_mark(const torch_machine *m, int64_t *first)
{
    for (int64_t i = m->n_stack; i > 0; i--) {
        if (m->stack[i - 1] != STACK_MARK) continue;
        *first = i;
        return PS_OK;
    }
    return fail_here(m, "no mark on the stack");
}

/* Replace the stack from `first` on by a tuple. */
static ps_status make_tuple(torch_machine *m, int64_t first, int64_t bottom)
{
    const int64_t n = m->n_stack;
    if (first < 0) return fail_here(m, "the stack is empty");
    for (int64_t i = first; i < n; i++)
        if (m->stack[i] == STACK_MARK) return fail_here(m, "a mark among the items of a tuple");
    PS_TRY(new_items(m, TORCH_TUPLE));
    const int32_t tuple = m->stack[n];
    for (int64_t i = first; i < n; i++) PS_TRY(append(m, tuple, m->stack[i]));
    m->stack[bottom] = tuple;
    m->n_stack = bottom + 1;
    return PS_OK;
}

/* Move the values above the last mark to the list or dictionary below it. */
static ps_status append_many(torch_machine *m, torch_kind kind)
{
    int64_t first = 0;
    int32_t container = 0;
    PS_TRY(find_mark(m, &first));
    const int64_t n = m->n_stack;
    m->n_stack = first - 1;
    PS_TRY(top(m, kind, &container));
    if (kind == TORCH_DICT && (n - first) % 2 != 0) return fail_here(m, "a key without a value");
    for (int64_t i = first; i < n; i++) PS_TRY(append(m, container, m->stack[i]));
    return PS_OK;
}

static ps_status append_one(torch_machine *m, torch_kind kind)
{
    int32_t value = 0, key = -1, container = 0;
    PS_TRY(pop(m, &value));
    if (kind == TORCH_DICT) PS_TRY(pop(m, &key));
    PS_TRY(top(m, kind, &container));
    if (kind == TORCH_DICT) PS_TRY(append(m, container, key));
    return append(m, container, value);
}

/* Memo numbers are consecutive, so the memo has no more entries than there are opcodes. */
static ps_status put_memo(torch_machine *m, uint64_t number)
{
    if (m->n_stack == 0 || m->stack[m->n_stack - 1] == STACK_MARK) return fail_here(m, "the stack is empty");
    if (number > (uint64_t)m->n_memo)
        return PS_FAIL(PS_EFORMAT, "%s: data.pkl: offset %lld: memo %llu is set after %lld others", m->path,
                       (long long)m->at, (unsigned long long)number, (long long)m->n_memo);
    PS_TRY(ps_mem_reserve(&m->memo, (size_t)m->n_memo + 1, sizeof *m->memo));
    if (number == (uint64_t)m->n_memo) m->n_memo++;
    m->memo[number] = m->stack[m->n_stack - 1];
    return PS_OK;
}

static ps_status get_memo(torch_machine *m, uint64_t number)
{
    if (number >= (uint64_t)m->n_memo)
        return PS_FAIL(PS_EFORMAT, "%s: data.pkl: offset %lld: memo %llu is not set", m->path, (long long)m->at,
                       (unsigned long long)number);
    return push(m, m->memo[number]);
}

/* ---- names and calls ---- */

static ps_status push_global(torch_machine *m, const char *module, size_t n_module, const char *name, size_t n_name)
{
    for (size_t i = 0; i < PS_ARRAY_LEN(globals); i++)
        if (strlen(globals[i].module) == n_module && memcmp(globals[i].module, module, n_module) == 0 &&
            strlen(globals[i].name) == n_name && memcmp(globals[i].name, name, n_name) == 0)
            return new_value(m, (torch_value){.kind = TORCH_GLOBAL, .global = globals[i].global});
    return PS_FAIL(PS_EFORMAT,
                   "%s: data.pkl: offset %lld: GLOBAL %.*s %.*s is not allowed: only tensors of a state_dict are read; "
                   "save model.state_dict() of plain tensors, or safetensors",
                   m->path, (long long)m->at, (int)ps_min_i64((int64_t)n_module, 128), module,
                   (int)ps_min_i64((int64_t)n_name, 128), name);
}

static ps_status op_global(torch_machine *m)
{
    const char *module = NULL, *name = NULL;
    size_t n_module = 0, n_name = 0;
    PS_TRY(take_line(m, &module, &n_module));
    PS_TRY(take_line(m, &name, &n_name));
    return push_global(m, module, n_module, name, n_name);
}

static ps_status op_stack_global(torch_machine *m)
{
    int32_t name = 0, module = 0;
    PS_TRY(pop(m, &name));
    PS_TRY(pop(m, &module));
    const torch_value *a = &m->values[module], *b = &m->values[name];
    if (a->kind != TORCH_TEXT || b->kind != TORCH_TEXT) return fail_here(m, "STACK_GLOBAL of what is no text");
    return push_global(m, a->text.at, a->text.n, b->text.at, b->text.n);
}

/* Up to `max` items of a tuple as value numbers; -1 past the last. Returns the number of items. */
static int32_t items_of(const torch_machine *m, int32_t tuple, int32_t *out, int32_t max)
{
    int32_t c = m->values[tuple].items.first;
    for (int32_t i = 0; i < max; i++) {
        out[i] = c >= 0 ? m->cells[c].value : -1;
        if (c >= 0) c = m->cells[c].next;
    }
    return m->values[tuple].items.n;
}

/* _rebuild_tensor_v2(storage, storage_offset, size, stride, requires_grad, backward_hooks[, metadata]) */
static ps_status rebuild_tensor(torch_machine *m, int32_t arguments)
{
    int32_t a[4];
    const int32_t n = items_of(m, arguments, a, 4);
    if (n < 6 || n > 7 || m->values[a[0]].kind != TORCH_STORAGE || m->values[a[1]].kind != TORCH_INTEGER ||
        m->values[a[1]].integer < 0)
        return fail_here(m, "_rebuild_tensor_v2 without a storage, an offset >= 0, size and stride");
    return new_value(
        m, (torch_value){.kind = TORCH_TENSOR,
                         .tensor = {.storage = a[0], .size = a[2], .stride = a[3], .offset = m->values[a[1]].integer}});
}

/* The result is represented by its only argument, of the required kind, as it is not used. */
static ps_status unwrap(torch_machine *m, int32_t arguments, torch_kind kind)
{
    int32_t first[1];
    if (items_of(m, arguments, first, 1) != 1 || m->values[first[0]].kind != kind)
        return fail_here(m, kind == TORCH_TUPLE ? "torch.Size of what is no tuple" : "a set of what is no list");
    return push(m, first[0]);
}

static ps_status op_reduce(torch_machine *m)
{
    int32_t arguments = 0, callable = 0, first[1];
    PS_TRY(pop(m, &arguments));
    PS_TRY(pop(m, &callable));
    if (m->values[arguments].kind != TORCH_TUPLE || m->values[callable].kind != TORCH_GLOBAL)
        return fail_here(m, "REDUCE of something that is no GLOBAL with a tuple is not allowed");
    switch (m->values[callable].global) {
    case TORCH_ORDERED_DICT:
        if (m->values[arguments].items.n != 0) return fail_here(m, "OrderedDict with arguments is not allowed");
        return new_items(m, TORCH_DICT);
    case TORCH_REBUILD_TENSOR: return rebuild_tensor(m, arguments);
    case TORCH_REBUILD_PARAMETER: /* (tensor, requires_grad, backward_hooks): represented by the tensor */
        if (items_of(m, arguments, first, 1) != 3 || m->values[first[0]].kind != TORCH_TENSOR)
            return fail_here(m, "_rebuild_parameter of what is no tensor");
        return push(m, first[0]);
    case TORCH_SIZE:
    case TORCH_SET: return unwrap(m, arguments, m->values[callable].global == TORCH_SIZE ? TORCH_TUPLE : TORCH_LIST);
    default: return fail_here(m, "REDUCE of a storage type is not allowed");
    }
}

/* ('storage', type, key, device, elements) */
static ps_status op_binpersid(torch_machine *m)
{
    int32_t id = 0, a[5];
    PS_TRY(pop(m, &id));
    if (m->values[id].kind != TORCH_TUPLE || items_of(m, id, a, 5) != 5 || m->values[a[0]].kind != TORCH_TEXT ||
        m->values[a[0]].text.n != 7 || memcmp(m->values[a[0]].text.at, "storage", 7) != 0 ||
        m->values[a[1]].kind != TORCH_GLOBAL || m->values[a[1]].global < TORCH_STORAGE_TYPE ||
        m->values[a[2]].kind != TORCH_TEXT || m->values[a[4]].kind != TORCH_INTEGER || m->values[a[4]].integer < 0)
        return fail_here(m, "a persistent id that is not ('storage', type, key, device, elements)");
    const ps_safetensors_dtype dtype = (ps_safetensors_dtype)(m->values[a[1]].global - TORCH_STORAGE_TYPE);
    return new_value(m, (torch_value){.kind = TORCH_STORAGE,
                                      .storage = {.dtype = dtype, .key = a[2], .n_elements = m->values[a[4]].integer}});
}

/* Sets the attribute _metadata (versions of modules) of an OrderedDict, which is not needed. */
static ps_status op_build(torch_machine *m)
{
    int32_t attributes = 0, target = 0;
    PS_TRY(pop(m, &attributes));
    if (m->values[attributes].kind != TORCH_DICT)
        return fail_here(m, "BUILD with what is no dictionary is not allowed");
    return top(m, TORCH_DICT, &target);
}

/* ---- opcodes ---- */

static ps_status push_integer(torch_machine *m, int64_t v)
{
    return new_value(m, (torch_value){.kind = TORCH_INTEGER, .integer = v});
}

/* A signed number of any length, here at most 8 bytes. */
static ps_status op_long1(torch_machine *m)
{
    uint64_t n = 0, v = 0;
    PS_TRY(take_number(m, 1, &n));
    if (n > 8) return fail_here(m, "an integer of more than 64 bits");
    PS_TRY(take_number(m, (int)n, &v));
    if (n > 0 && n < 8 && (v >> (8 * n - 1) & 1) != 0) v |= ~(uint64_t)0 << 8 * n;
    return push_integer(m, (int64_t)v);
}

static ps_status op_text(torch_machine *m, int n_length)
{
    uint64_t n = 0;
    const uint8_t *text = NULL;
    PS_TRY(take_number(m, n_length, &n));
    PS_TRY(take(m, n, &text));
    return new_value(m, (torch_value){.kind = TORCH_TEXT, .text = {.at = (const char *)text, .n = (size_t)n}});
}

static ps_status op_proto(torch_machine *m)
{
    uint64_t v = 0;
    PS_TRY(take_number(m, 1, &v));
    if (v >= 2 && v <= 5) return PS_OK;
    return PS_FAIL(PS_EFORMAT, "%s: data.pkl: pickle protocol %llu, expected 2 to 5", m->path, (unsigned long long)v);
}

/* Size in bytes of the number after an opcode; 0 for opcodes without one. */
static int number_bytes(int op)
{
    switch (op) {
    case TORCH_OP_BININT1:
    case TORCH_OP_BINPUT:
    case TORCH_OP_BINGET: return 1;
    case TORCH_OP_BININT2: return 2;
    case TORCH_OP_BININT:
    case TORCH_OP_LONG_BINPUT:
    case TORCH_OP_LONG_BINGET: return 4;
    case TORCH_OP_BINFLOAT:
    case TORCH_OP_FRAME: return 8;
    default: return 0;
    }
}

static ps_status op_mark_tuple(torch_machine *m)
{
    int64_t first = 0;
    PS_TRY(find_mark(m, &first));
    return make_tuple(m, first, first - 1);
}

static ps_status run_op(torch_machine *m, int op)
{
    uint64_t v = 0;
    PS_TRY(take_number(m, number_bytes(op), &v));
    switch (op) {
    case TORCH_OP_PROTO: return op_proto(m);
    case TORCH_OP_FRAME: return PS_OK; /* a hint for readers from a stream */
    case TORCH_OP_MARK: return push(m, STACK_MARK);
    case TORCH_OP_NONE: return new_value(m, (torch_value){.kind = TORCH_NONE});
    case TORCH_OP_NEWTRUE: return push_integer(m, 1);
    case TORCH_OP_NEWFALSE: return push_integer(m, 0);
    case TORCH_OP_BININT1:
    case TORCH_OP_BININT2: return push_integer(m, (int64_t)v);
    case TORCH_OP_BININT: return push_integer(m, (int32_t)(uint32_t)v);
    case TORCH_OP_LONG1: return op_long1(m);
    case TORCH_OP_BINFLOAT: return new_value(m, (torch_value){.kind = TORCH_FLOAT});
    case TORCH_OP_BINUNICODE: return op_text(m, 4);
    case TORCH_OP_SHORT_BINUNICODE: return op_text(m, 1);
    case TORCH_OP_EMPTY_TUPLE: return new_items(m, TORCH_TUPLE);
    case TORCH_OP_TUPLE: return op_mark_tuple(m);
    case TORCH_OP_TUPLE1:
    case TORCH_OP_TUPLE2:
    case TORCH_OP_TUPLE3:
        return make_tuple(m, m->n_stack - (op - TORCH_OP_TUPLE1 + 1), m->n_stack - (op - TORCH_OP_TUPLE1 + 1));
    case TORCH_OP_EMPTY_LIST: return new_items(m, TORCH_LIST);
    case TORCH_OP_APPEND: return append_one(m, TORCH_LIST);
    case TORCH_OP_APPENDS: return append_many(m, TORCH_LIST);
    case TORCH_OP_EMPTY_DICT: return new_items(m, TORCH_DICT);
    case TORCH_OP_SETITEM: return append_one(m, TORCH_DICT);
    case TORCH_OP_SETITEMS: return append_many(m, TORCH_DICT);
    case TORCH_OP_BINPUT:
    case TORCH_OP_LONG_BINPUT: return put_memo(m, v);
    case TORCH_OP_MEMOIZE: return put_memo(m, (uint64_t)m->n_memo);
    case TORCH_OP_BINGET:
    case TORCH_OP_LONG_BINGET: return get_memo(m, v);
    case TORCH_OP_GLOBAL: return op_global(m);
    case TORCH_OP_STACK_GLOBAL: return op_stack_global(m);
    case TORCH_OP_REDUCE: return op_reduce(m);
    case TORCH_OP_BUILD: return op_build(m);
    case TORCH_OP_BINPERSID: return op_binpersid(m);
    default:
        return PS_FAIL(PS_EFORMAT,
                       "%s: data.pkl: offset %lld: opcode 0x%02x is not one that torch.save writes for tensors",
                       m->path, (long long)(m->at - 1), (unsigned)op);
    }
}

ps_status torch_machine_run(torch_machine *m)
{
    if (m->n_data > INT32_MAX / 2)
        return PS_FAIL(PS_EFORMAT, "%s: data.pkl has %lld bytes", m->path, (long long)m->n_data);
    for (;;) {
        const uint8_t *op = NULL;
        PS_TRY(take(m, 1, &op));
        if (*op == TORCH_OP_STOP) break;
        PS_TRY(run_op(m, *op));
    }
    PS_TRY(pop(m, &m->result));
    if (m->n_stack != 0) return fail_here(m, "more than one value is left at the end");
    if (m->values[m->result].kind != TORCH_DICT) return fail_here(m, "it holds no dictionary of tensors");
    return PS_OK;
}

void torch_machine_free(torch_machine *m)
{
    ps_mem_free(m->values);
    ps_mem_free(m->cells);
    ps_mem_free(m->stack);
    ps_mem_free(m->memo);
}

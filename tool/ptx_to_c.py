#!/usr/bin/env python3
"""Translates the PTX that nvcc makes of a .cu file into C that runs on the emulator of test/cuda, one fiber a thread.

usage: tool/ptx_to_c.py [--count] FILE.ptx FILE.c

  --count  instructions that run, and accesses to global memory, are counted (test/cuda/emu_counts.h)

Each kernel becomes a C function and a `const emu_kernel NAME_kernel` (test/cuda/emu_calls.h); each register a variable, each
instruction a statement. Kernels of bf16 and f16 that differ in nothing else have one function, which halves the time to
compile tensor cores' kernels. Every access to memory is checked: alignment, the array that it is in, races (test/cuda/ptx_run.h).
An instruction that is not in the lists here is an error with its name, file and line; test/cuda/ptx_cases.py has an example
of each. What runs is what nvcc made: its contraction, unrolling, predicates and arithmetic of addresses. What ptxas makes of
that is not seen, nor is timing.
"""
import re
import sys

# The C type of each PTX type.
TYPES = {'u8': 'uint8_t', 's8': 'int8_t', 'b8': 'uint8_t', 'u16': 'uint16_t', 's16': 'int16_t', 'b16': 'uint16_t',
         'u32': 'uint32_t', 's32': 'int32_t', 'b32': 'uint32_t', 'u64': 'uint64_t', 's64': 'int64_t', 'b64': 'uint64_t',
         'f32': 'float', 'f64': 'double', 'pred': 'bool'}
SPECIAL = {'%tid.x': 'emu_thread_index.x', '%ctaid.x': 'emu_block_index.x', '%ntid.x': 'emu_block_dim.x',
           '%nctaid.x': 'emu_grid_dim.x', '%laneid': 'emu_thread_index.x % 32'}
COMPARE = {'eq': '==', 'ne': '!=', 'lt': '<', 'le': '<=', 'gt': '>', 'ge': '>='}
SPACES = ('global', 'shared', 'local', 'param')


def size_of(t):
    return int(t[1:]) // 8


def is_float(t):
    return t in ('f32', 'f64')


def c_name(name):
    return re.sub(r'\W', '_', name)


def split(text):
    """What commas separate, outside of brackets."""
    parts, depth = [''], 0
    for c in text:
        depth += (c in '{[(') - (c in '}])')
        if c == ',' and depth == 0:
            parts.append('')
        else:
            parts[-1] += c
    return [p.strip() for p in parts if p.strip()]


class Unknown(Exception):
    """Something that is not translated: the line is added where it is known."""


# ---- instructions: name -> function(emitter, parts of the name, operands) -> C statements ----

INSTRUCTIONS = {}


def instruction(names):
    """Registers the function for each of these names; {a|b} in a name stands for either."""
    def expand(name):
        m = re.search(r'\{([^}]*)\}', name)
        if m is None:
            return [name]
        return [n for choice in m[1].split('|') for n in expand(name[:m.start()] + choice + name[m.end():])]

    def register(function):
        for pattern in names.split():
            for name in expand(pattern):
                assert name not in INSTRUCTIONS, name
                INSTRUCTIONS[name] = function
        return function
    return register


@instruction('mov.{b16|b32|b64|u16|u32|u64|f32|f64|pred}')
def mov(e, op, a):
    t = op[-1]
    if a[0].startswith('{') or a[1].startswith('{'):
        parts = split(a[0][1:-1] if a[0].startswith('{') else a[1][1:-1])
        bits = 8 * size_of(t) // len(parts)
        part = f'b{bits}'
        if a[1].startswith('{'):
            return e.set(a[0], t, ' | '.join(f'(uint64_t){e.get(x, part)} << {bits * i}' for i, x in enumerate(parts)))
        return ' '.join([f'const uint64_t t_ = {e.get(a[1], t)};'] +
                        [e.set(x, part, f't_ >> {bits * i}') for i, x in enumerate(parts) if x != '_'])
    return e.set(a[0], t, e.get(a[1], t))


@instruction('add.{s32|s64|u32|u64} sub.{s32|s64|u32|u64} mul.lo.{s32|s64|u32|u64}')
def whole(e, op, a):
    u = 'u' + op[-1][1:]
    sign = {'add': '+', 'sub': '-', 'mul': '*'}[op[0]]
    return e.set(a[0], u, f'{e.get(a[1], u)} {sign} {e.get(a[2], u)}')


@instruction('mad.lo.s32')
def mad(e, op, a):
    return e.set(a[0], 'u32', f'{e.get(a[1], "u32")} * {e.get(a[2], "u32")} + {e.get(a[3], "u32")}')


@instruction('mul.hi.{u32|u64} mul.wide.{u16|s32|u32}')
def product(e, op, a):
    t, bits = op[-1], 8 * size_of(op[-1])
    wide = 'unsigned __int128' if bits == 64 else ('int64_t' if t[0] == 's' else 'uint64_t')
    value = f'({wide}){e.get(a[1], t)} * {e.get(a[2], t)}'
    return e.set(a[0], f'{t[0]}{2 * bits}', value) if op[1] == 'wide' else e.set(a[0], t, f'({value}) >> {bits}')


@instruction('{add|addc|mad.lo|madc.lo|madc.hi}.cc.u32 {addc|madc.hi}.u32')
def with_carry(e, op, a):
    value = ' + '.join(f'(uint64_t){e.get(x, "u32")}' for x in a[1:])
    if op[0].startswith('mad'):
        factors = f'(uint64_t){e.get(a[1], "u32")} * {e.get(a[2], "u32")}'
        half = f'(uint32_t)({factors})' if op[1] == 'lo' else f'(({factors}) >> 32)'
        value = f'(uint64_t){half} + {e.get(a[3], "u32")}'
    if op[0] in ('addc', 'madc'):
        value += ' + carry_'
    return f'const uint64_t t_ = {value}; {"carry_ = t_ >> 32; " if "cc" in op else ""}{e.set(a[0], "u32", "t_")}'


@instruction('{sub|subc}.cc.u32 subc.u32')
def with_borrow(e, op, a):
    value = f'(uint64_t){e.get(a[1], "u32")} - {e.get(a[2], "u32")}{" - carry_" if op[0] == "subc" else ""}'
    return f'const uint64_t t_ = {value}; {"carry_ = t_ >> 32 & 1; " if "cc" in op else ""}{e.set(a[0], "u32", "t_")}'


@instruction('div.{s32|s64|u32|u64} rem.{s32|s64|u32}')
def quotient(e, op, a):
    t = op[-1]
    return e.set(a[0], t, f'ptx_{op[0]}_{t}({e.get(a[1], t)}, {e.get(a[2], t)}, {e.at})')


@instruction('min.{s32|s64} max.{s32|s64|u32|u64}')
def extreme(e, op, a):
    t, x, y = op[-1], e.get(a[1], op[-1]), e.get(a[2], op[-1])
    return e.set(a[0], t, f'{x} {"<" if op[0] == "min" else ">"} {y} ? {x} : {y}')


@instruction('min.f32 max.f32')
def extreme_float(e, op, a):
    return e.set(a[0], 'f32', f'ptx_{op[0]}_f32({e.get(a[1], "f32")}, {e.get(a[2], "f32")})')


@instruction('and.{b16|b32|b64|pred} or.{b32|b64|pred} xor.{b32|b64|pred}')
def bits_of_two(e, op, a):
    t = op[-1]
    return e.set(a[0], t, f'{e.get(a[1], t)} {dict(zip(("and", "or", "xor"), "&|^"))[op[0]]} {e.get(a[2], t)}')


@instruction('not.{b32|b64|pred}')
def bits_of_one(e, op, a):
    return e.set(a[0], op[-1], ('!' if op[-1] == 'pred' else '~') + e.get(a[1], op[-1]))


@instruction('shl.{b16|b32|b64} shr.{u16|s16|u32|s32|u64|s64}')
def shift(e, op, a):
    t, bits, by = op[-1], 8 * size_of(op[-1]), e.get(a[2], 'u32')
    if a[2].isdigit() and int(a[2]) < bits:
        return e.set(a[0], t, f'{e.get(a[1], t)} {"<<" if op[0] == "shl" else ">>"} {a[2]}')
    beyond = f'{e.get(a[1], t)} >> {bits - 1}' if t[0] == 's' else '0'
    return e.set(a[0], t, f'{by} >= {bits} ? {beyond} : {e.get(a[1], t)} {"<<" if op[0] == "shl" else ">>"} {by}')


@instruction('neg.{s32|s64|f32|f64}')
def negative(e, op, a):
    t = op[-1]
    if is_float(t):
        return e.set(a[0], t, f'-{e.get(a[1], t)}')
    return e.set(a[0], t, f'0 - {e.get(a[1], "u" + t[1:])}')


@instruction('abs.{f32|f64}')
def magnitude(e, op, a):
    return e.set(a[0], op[-1], f'__builtin_fabs{"f" if op[-1] == "f32" else ""}({e.get(a[1], op[-1])})')


@instruction('abs.s32')
def magnitude_of_whole(e, op, a):
    x = e.get(a[1], 's32')
    return e.set(a[0], 's32', f'{x} < 0 ? 0 - {e.get(a[1], "u32")} : {x}')


@instruction('copysign.f32')
def copysign(e, op, a):
    return e.set(a[0], 'f32', f'__builtin_copysignf({e.get(a[2], "f32")}, {e.get(a[1], "f32")})')


@instruction('{add|sub|mul}.{f32|f64} {add|sub|mul}.rn.f32 mul.rn.f64 div.rn.f32')
def arithmetic(e, op, a):
    t, sign = op[-1], {'add': '+', 'sub': '-', 'mul': '*', 'div': '/'}[op[0]]
    return e.set(a[0], t, f'{e.get(a[1], t)} {sign} {e.get(a[2], t)}')


@instruction('add.rz.f32 fma.rm.f32 ex2.approx.ftz.f32 rcp.approx.ftz.f32')
def by_function(e, op, a):
    name = op[0] + ('_' + op[1] if op[1] != 'approx' else '')
    return e.set(a[0], 'f32', f'ptx_{name}({", ".join(e.get(x, "f32") for x in a[1:])})')


@instruction('fma.rn.{f32|f64}')
def fma(e, op, a):
    t = op[-1]
    return e.set(a[0], t, f'__builtin_fma{"f" if t == "f32" else ""}({", ".join(e.get(x, t) for x in a[1:])})')


@instruction('rcp.rn.{f32|f64}')
def reciprocal(e, op, a):
    return e.set(a[0], op[-1], f'1 / {e.get(a[1], op[-1])}')


@instruction('sqrt.rn.f32')
def root(e, op, a):
    return e.set(a[0], 'f32', f'__builtin_sqrtf({e.get(a[1], "f32")})')


@instruction('bfi.b32')
def bfi(e, op, a):
    return e.set(a[0], 'b32', f'ptx_bfi({", ".join(e.get(x, "u32") for x in a[1:])})')


@instruction('popc.b32')
def popc(e, op, a):
    return e.set(a[0], 'u32', f'__builtin_popcount({e.get(a[1], "b32")})')


@instruction('clz.b64')
def clz(e, op, a):
    return e.set(a[0], 'u32', f'{e.get(a[1], "b64")} == 0 ? 64 : __builtin_clzll({e.get(a[1], "b64")})')


@instruction('selp.{b16|b32|b64|u32|u64|f32|f64}')
def select(e, op, a):
    return e.set(a[0], op[-1], f'{e.get(a[3], "pred")} ? {e.get(a[1], op[-1])} : {e.get(a[2], op[-1])}')


@instruction('setp.{eq|ne|lt|gt}.{s32|s64} setp.{le|ge}.{s32|s64} setp.{eq|ne}.s16 setp.eq.{b32|b64} setp.{lt|le|gt|ge}.u32 '
             'setp.{lt|gt}.u64 setp.{eq|lt|le|gt|ge}.f32 setp.eq.f64')
def compare(e, op, a):
    return e.set(a[0], 'pred', f'{e.get(a[1], op[-1])} {COMPARE[op[1]]} {e.get(a[2], op[-1])}')


@instruction('setp.{ltu|leu|geu}.f32 setp.ltu.f64')
def compare_unordered(e, op, a):
    opposite = {'ltu': '>=', 'leu': '>', 'geu': '<'}[op[1]]
    return e.set(a[0], 'pred', f'!({e.get(a[1], op[-1])} {opposite} {e.get(a[2], op[-1])})')


@instruction('setp.{num|nan}.f32')
def compare_nan(e, op, a):
    return e.set(a[0], 'pred', f'{"!" if op[1] == "num" else ""}__builtin_isunordered({e.get(a[1], "f32")}, {e.get(a[2], "f32")})')


@instruction('cvt.{s64.s32|u64.u32|u32.u64|u32.u16|u16.u32|s32.s16|u16.u8|s16.s8|u32.u8|s32.s8}')
def convert_whole(e, op, a):
    return e.set(a[0], op[1], e.get(a[1], op[2]))


@instruction('cvt.rn.f32.{u16|s16|s32|s64|u32|f64} cvt.rn.f64.{s32|s64|u32} cvt.f64.f32')
def convert(e, op, a):
    return e.set(a[0], op[-2], e.get(a[1], op[-1]))


@instruction('cvt.rn.{bf16|f16}.f32')
def convert_to_half(e, op, a):
    x = e.get(a[1], 'f32')
    return e.set(a[0], 'b16', f'is_bf16_ ? ptx_bf16({x}) : ptx_f16({x})' if e.has_twins else f'ptx_{op[2]}({x})')


@instruction('cvt.f32.f16')
def convert_from_half(e, op, a):
    return e.set(a[0], 'f32', f'ptx_of_f16({e.get(a[1], "b16")})')


@instruction('cvt.sat.f32.f32')
def saturate(e, op, a):
    return e.set(a[0], 'f32', f'ptx_sat({e.get(a[1], "f32")})')


@instruction('cvt.rni.s32.f64 cvt.rzi.{u32|u64}.f64')
def convert_to_whole(e, op, a):
    return e.set(a[0], op[2], f'ptx_{op[2]}_{op[1]}({e.get(a[1], "f64")})')


@instruction('cvta.to.global.u64')
def same_address(e, op, a):
    return e.set(a[0], 'u64', e.get(a[1], 'u64'))


@instruction('cvta.to.shared.u64 cvta.shared.u64')
def shared_address(e, op, a):
    return e.set(a[0], 'u64', f'{e.get(a[1], "u64")} {"-" if op[1] == "to" else "+"} shared_')


@instruction('ld.f32 ld.global.{u8|s8|u16|u32|s32|u64|f32} ld.global.v4.{u16|u32|f32} ld.global.nc.{u64|v2.f64} '
             'ld.shared.{u32|s32|f32|u64|f64} ld.shared.{v2|v4}.f32 ld.shared.v2.u32 ld.local.u64 '
             'ld.param.{u8|u32|u64|b32|f32|f64} ld.param.v2.{u8|u32|f32}')
def load(e, op, a):
    t, n = op[-1], count(op)
    targets = split(a[0][1:-1]) if n > 1 else [a[0]]
    return e.access(op, a[1], n * size_of(t), 'EMU_READ') + ' '.join(
        e.set(x, t, f'(({TYPES[t]} *)p_)[{i}]') for i, x in enumerate(targets))


@instruction('st.f32 st.global.{u8|u16|u32|u64|f32|f64} st.global.v4.{u16|u32|f32} st.shared.{u32|u64|f32|f64} st.shared.v2.u32 '
             'st.local.u64 st.param.{b32|f64}')
def store(e, op, a):
    t, n = op[-1], count(op)
    values = split(a[1][1:-1]) if n > 1 else [a[1]]
    return e.access(op, a[0], n * size_of(t), 'EMU_WRITE') + ' '.join(
        f'(({TYPES[t]} *)p_)[{i}] = {e.get(x, t)};' for i, x in enumerate(values))


@instruction('atom.shared.add.u32 atom.shared.max.s32 atom.global.add.u64')
def atom(e, op, a):
    t, x = op[-1], e.get(a[2], op[-1])
    new = f't_ + {x}' if op[2] == 'add' else f't_ > {x} ? t_ : {x}'
    return (e.access(op, a[1], size_of(t), 'EMU_ATOMIC') +
            f'const {TYPES[t]} t_ = *({TYPES[t]} *)p_; *({TYPES[t]} *)p_ = {new}; ' +
            e.set(a[0], t, 't_'))


@instruction('cp.async.{ca|cg}.shared.global')
def copy(e, op, a):
    if len(a) != 4 or not a[2].isdigit():
        raise Unknown('cp.async without the size of what there is')
    to, offset, source = e.place(a[0]), e.new_site(), e.place(a[1])
    there = e.get(a[3], 'u32')
    return (f'const uint64_t a_ = (uint32_t)({to}), f_ = {source}; '
            f'PTX_CHECK(shared, {offset}, a_, {a[2]}, {e.at}); '
            f'if ({there} != 0 && {there} != {a[2]}) emu_stop_at("a copy of a part", {e.at}); '
            f'if ({there} != 0) {{ PTX_GLOBAL({e.counted_site()}, f_, {a[2]}, EMU_READ, {e.at}); }} '
            f'else {{ PTX_COUNT_OFF({e.counted_site(is_new=False)}); }} '
            f'emu_copy_begin((void *)(shared_ + a_), (const void *)f_, {a[2]}, {there} != 0);')


@instruction('cp.async.commit_group')
def commit(e, op, a):
    return 'emu_copies_commit();'


@instruction('cp.async.wait_group')
def wait(e, op, a):
    return f'emu_copies_wait({e.get(a[0], "u32")});'


@instruction('bar.sync')
def barrier(e, op, a):
    if a != ['0']:
        raise Unknown('another barrier than 0 of the whole block')
    return 'emu_block_barrier();'


@instruction('bar.warp.sync')
def barrier_of_warp(e, op, a):
    return f'emu_warp_barrier({e.get(a[0], "u32")});'


@instruction('shfl.sync.{bfly|idx|up}.b32')
def shuffle(e, op, a):
    to = a[0].split('|')
    values = ', '.join(e.get(x, 'u32') for x in a[1:])
    return (f'bool is_valid_; const uint32_t t_ = ptx_shfl_{op[2]}({values}, &is_valid_); {e.set(to[0], "b32", "t_")} ' +
            (e.set(to[1], 'pred', 'is_valid_') if len(to) > 1 else ''))


@instruction('vote.sync.ballot.b32')
def ballot(e, op, a):
    return e.set(a[0], 'b32', f'ptx_ballot({e.get(a[1], "pred")}, {e.get(a[2], "u32")})')


@instruction('mma.sync.aligned.m16n8k16.row.col.f32.{bf16.bf16|f16.f16}.f32')
def mma(e, op, a):
    d, x, y, c = [split(v[1:-1]) for v in a]
    is_bf16 = 'is_bf16_' if e.has_twins else 'true' if 'bf16' in op else 'false'
    return (f'float c_[4] = {{{", ".join(e.get(v, "f32") for v in c)}}}; '
            f'const uint32_t a_[4] = {{{", ".join(e.get(v, "b32") for v in x)}}}; '
            f'emu_mma(c_, a_, {e.get(y[0], "b32")}, {e.get(y[1], "b32")}, {is_bf16}); ' +
            ' '.join(e.set(v, 'f32', f'c_[{i}]') for i, v in enumerate(d)))


@instruction('ldmatrix.sync.aligned.m8n8.x4.{shared|trans.shared}.b16')
def ldmatrix(e, op, a):
    return (e.access(['ldmatrix', 'shared'], a[1], 16, 'EMU_READ') + 'unsigned r_[4]; '
            f'emu_load_matrices(r_, (const void *)p_, {"true" if "trans" in op else "false"}); ' +
            ' '.join(e.set(x, 'b32', f'r_[{i}]') for i, x in enumerate(split(a[0][1:-1]))))


@instruction('bra bra.uni')
def branch(e, op, a):
    return f'goto {c_name(a[0])};'


@instruction('ret')
def ret(e, op, a):
    return 'return;'


@instruction('call.uni')
def call(e, op, a):
    if len(a) != 3:
        raise Unknown('a call without a result')
    if a[1] not in e.module.functions:
        raise Unknown(f'a call of {a[1]}, which the file does not define')
    arguments = [e.symbol(x) for x in split(a[0][1:-1]) + split(a[2][1:-1])]
    return f'{c_name(a[1])}(shared_, {", ".join(arguments)});'


def count(op):
    return next((int(p[1]) for p in op if p in ('v2', 'v4')), 1)


# ---- functions ----

# A brace that begins a statement is a scope's; one of a vector is within its instruction.
TOKEN = re.compile(r'\s+|(?P<brace>[{}])|(?P<label>[$\w]+):|(?P<statement>[^;]+);')


class Emitter:
    """The body of a kernel or function, as it is translated."""

    def __init__(self, module):
        self.module, self.line, self.out = module, 0, []
        self.scopes = [{}]   # registers, by name: their PTX type
        self.symbols = dict(module.symbols)
        self.sizes = {}      # of symbols in the space of parameters, and of local memory
        self.has_twins = False
        self.first_line = 0
        self.counted = None  # number of this statement's access to global memory
        self.block = None    # by --count the number of the basic block; None: the next instruction begins one
        self.blocks = []     # instructions of each

    @property
    def at(self):
        """The line in the messages of a run: of a function that several kernels have, it counts from each one's first."""
        return f'line_ + {self.line - self.first_line}' if self.has_twins else self.line

    def type_of(self, x):
        return next((s[x] for s in reversed(self.scopes) if x in s), None)

    def symbol(self, x):
        if x not in self.symbols:
            raise Unknown(f'the name {x}')
        return self.symbols[x]

    def get(self, x, t):
        """An operand, read as of type t: a C expression of that type."""
        kind = self.type_of(x)
        if kind is not None:
            v = c_name(x)
            if TYPES[kind] == TYPES[t]:
                return v
            # Of a wider register an instruction takes what it has of its own type; bits of a float are those of an integer.
            if 'pred' in (t, kind) or size_of(kind) < size_of(t) or is_float(t) and (is_float(kind) or size_of(kind) > size_of(t)):
                raise Unknown(f'{x} as {t}')
            if is_float(t):
                return f'ptx_{t}({v})'
            if is_float(kind):
                v = f'ptx_b{kind[1:]}({v})'
            return f'({TYPES[t]}){v}'
        if x in SPECIAL:
            return f'({TYPES[t]})({SPECIAL[x]})'
        if re.fullmatch(r'0[fF][0-9A-Fa-f]{8}', x):
            return f'ptx_f32(0x{x[2:]}u)' if t == 'f32' else f'({TYPES[t]})0x{x[2:]}u'
        if re.fullmatch(r'0[dD][0-9A-Fa-f]{16}', x) and t == 'f64':
            return f'ptx_f64(0x{x[2:]}u)'
        if re.fullmatch(r'-?(\d+|0[xX][0-9A-Fa-f]+)', x) and not is_float(t):
            value = int(x, 0)
            if t == 'pred':
                return str(int(value != 0))
            if t[1:] in ('32', '64') and t[0] != 's':
                return f'{value % 2 ** (8 * size_of(t))}u{"l" if t[1:] == "64" else ""}'
            return f'({TYPES[t]}){value % 2 ** 64}u'
        if x in self.symbols and not is_float(t):
            return f'({TYPES[t]}){self.symbols[x]}'
        raise Unknown(f'the operand {x}')

    def set(self, x, t, value):
        """The statement that assigns a value of type t to a register."""
        kind, v = self.type_of(x), c_name(x)
        if x == '_':
            return f'(void)({value});'
        if kind is None:
            raise Unknown(f'the register {x}')
        if kind != t and ('pred' in (t, kind) or size_of(kind) < size_of(t) or
                          (is_float(t) or is_float(kind)) and (size_of(kind) > size_of(t) or is_float(t) == is_float(kind))):
            raise Unknown(f'{x} as {t}')
        if kind in (t, 'b' + t[1:]) and not is_float(t) and t[0] != 's':
            return f'{v} = {value};'
        if is_float(t):
            return f'{v} = {value};' if kind == t else f'{v} = ptx_b{t[1:]}({value});'
        if is_float(kind):
            return f'{v} = ptx_{kind}({value});'
        return f'{v} = ({TYPES[t]})({value});'  # of a signed type its sign goes on into a wider register

    def new_site(self):
        self.module.n_sites += 1
        return self.module.n_sites - 1 - self.module.first_site

    def counted_site(self, is_new=True):
        """One that accesses global memory: a new one, or that of the statement again."""
        if is_new:
            self.counted = self.new_site()
        return self.counted

    def count_instruction(self):
        if not self.module.counts:
            return
        if self.block is None:
            self.block = len(self.blocks)
            self.blocks.append(0)
            self.out.append(f'    emu_executed[first_block_ + {self.block}][emu_thread_index.x]++;')
        self.blocks[self.block] += 1

    def place(self, operand):
        """[register + number] or [name + number] as an address: a C expression of 64 bits."""
        m = re.fullmatch(r'\[\s*([%$\w]+)\s*(?:\+\s*(-?\d+))?\s*\]', operand)
        if m is None:
            raise Unknown(f'the address {operand}')
        kind = self.type_of(m[1])
        base = self.get(m[1], 'u64') if kind is None else self.get(m[1], kind)
        return f'{base} + {int(m[2] or 0) % 2 ** 64}ul'

    def access(self, op, operand, n_bytes, kind):
        """Statements that check an access; p_ is then its address in the host."""
        space = next((p for p in op if p in SPACES), 'generic')
        name = re.fullmatch(r'\[\s*([%$\w]+).*\]', operand)
        if space == 'shared':
            return (f'const uint64_t a_ = (uint32_t)({self.place(operand)}), p_ = shared_ + a_; '
                    f'PTX_SHARED({self.new_site()}, a_, {n_bytes}, {kind}, {self.at}); ')
        begin = f'const uint64_t p_ = {self.place(operand)}; '
        fixed = re.fullmatch(r'\[\s*([$\w]+)\s*(?:\+\s*(\d+))?\s*\]', operand)
        if space in ('param', 'local') and fixed is not None and fixed[1] in self.sizes:
            if int(fixed[2] or 0) % n_bytes != 0 or int(fixed[2] or 0) + n_bytes > self.sizes[fixed[1]]:
                raise Unknown(f'{n_bytes} bytes at {operand}, of {self.sizes[fixed[1]]}')
            return begin
        if space in ('global', 'generic'):
            return begin + f'PTX_{space.upper()}({self.counted_site()}, p_, {n_bytes}, {kind}, {self.at}); '
        if space == 'local':
            base, size, what = self.symbols[self.depot], self.sizes[self.depot], 'local memory'
        else:
            owner = name[1] if name is not None and name[1] in self.sizes else self.parameter
            if owner is None:
                raise Unknown(f'the parameter {operand}')
            base, size, what = self.symbols[owner], self.sizes[owner], 'parameters'
        return begin + f'PTX_OWN("{what}", p_, {n_bytes}, {base}, {size}u, {self.at}); '

    # ---- declarations ----

    def add_registers(self, text, body):
        t, names = re.fullmatch(r'\.reg\s+\.(\w+)\s+(.*)', text, re.S).groups()
        t = {'s16': 'b16', 'u16': 'b16', 's32': 'b32', 'u32': 'b32', 's64': 'b64', 'u64': 'b64'}.get(t, t)
        if t not in TYPES:
            raise Unknown(f'registers of type {t}')
        declared = []
        for name in split(names):
            m = re.fullmatch(r'([%$\w]+)<(\d+)>', name)
            for x in [f'{m[1]}{i}' for i in range(int(m[2]))] if m else [name]:
                self.scopes[-1][x] = t
                if x in body:
                    declared.append(c_name(x))
        if declared:
            self.out.append(f'    {TYPES[t]} {", ".join(declared)};')

    def add_memory(self, text):
        m = re.fullmatch(r'\.(param|local)\s+(?:\.align\s+(\d+)\s+)?\.(\w+)\s+([%$\w]+)(?:\[(\d+)\])?', text)
        if m is None:
            raise Unknown(f'the declaration {text}')
        size = size_of(m[3]) * int(m[5] or 1)
        self.out.append(f'    char {c_name(m[4])}[{size}] __attribute__((aligned(16)));')
        self.symbols[m[4]], self.sizes[m[4]] = f'(uint64_t){c_name(m[4])}', size
        if m[1] == 'local':
            self.depot = m[4]

    parameter = depot = None

    def statement(self, text):
        if text.startswith('.reg'):
            return self.add_registers(text, self.used)
        if text.startswith(('.param', '.local')):
            return self.add_memory(text)
        if text.startswith(('.shared', '.pragma')):  # the module has arrays of shared memory
            return None
        guard = ''
        m = re.fullmatch(r'@(!?)(%\w+)\s+(.*)', text, re.S)
        if m is not None:
            guard, text = f'if ({m[1]}{self.get(m[2], "pred")}) ', m[3]
        m = re.fullmatch(r'([a-z][\w.]*)\s*(.*)', text, re.S)
        if m is None or m[1] not in INSTRUCTIONS:
            raise Unknown(f'the instruction {m[1] if m else text}')
        self.count_instruction()
        self.counted = None
        code = INSTRUCTIONS[m[1]](self, m[1].split('.'), split(m[2]))
        self.out.append(f'    {guard}{code}' if code.count(';') == 1 else f'    {guard}{{ {code} }}')
        if guard and self.module.counts and self.counted is not None:
            self.out.append(f'    else PTX_COUNT_OFF({self.counted});')
        if m[1].startswith(('bra', 'ret')):
            self.block = None
        return None

    def translate(self, body, first_line):
        self.used = set(re.findall(r'[%$\w]+', re.sub(r'\.reg[^;]*;', '', body)))
        self.line, self.first_line, at = first_line, first_line, 0
        while at < len(body):
            m = TOKEN.match(body, at)
            if m is None:
                raise Unknown(f'what begins with {body[at:at + 40]!r}')
            if m['label'] is not None:
                self.out.append(f'{c_name(m["label"])}:;')
                self.block = None
            elif m['statement'] is not None:
                self.statement(m['statement'].strip())
            elif m['brace'] is not None:
                self.scopes = self.scopes + [{}] if m['brace'] == '{' else self.scopes[:-1]
                self.out.append('    ' + m['brace'])
            self.line += m[0].count('\n')
            at = m.end()


def signature(m):
    arguments = ', '.join(f'char *{c_name(name)}' for _, name, _ in FORMAL.findall(m['result'] + m['formal']))
    return f'static void {c_name(m["name"])}(uint64_t shared_, {arguments})'


# What one function can do for kernels of both: the instruction asks which of them runs.
HALF_OF = re.compile(r'(?<=\.f32\.)(?:bf16\.bf16|f16\.f16)(?=\.f32\s)|(?<=cvt\.rn\.)b?f16(?=\.f32\s)')


def plain_text(m):
    """Of a kernel, without its name and number; of one that has bf16 or f16 in such instructions only, without which."""
    body = re.sub(r'\$L__BB\d+_', '$L_', m['formal'] + m['body'])
    body = re.sub(rf'\b{m["name"]}(?![a-z0-9])', 'NAME', body)
    return HALF_OF.sub('HALF', body) if len({k.startswith('b') for k in HALF_OF.findall(body)}) == 1 else body


class Module:
    def __init__(self, path, functions, kernels, counts):
        self.counts = counts
        self.function_blocks, self.n_function_sites = [], 0  # basic blocks, and places that touch memory, of all functions
        self.path, self.symbols, self.functions = path, {}, {m['name'] for m in functions}
        self.n_sites = self.first_site = 0
        self.head, self.out, self.constants = [f'{signature(m)};' for m in functions], [], []
        self.shared = {}     # arrays of shared memory: bytes
        self.dynamic = set() # those whose size the launch says
        self.twins = {}      # names of the kernels with a text, by it
        for m in kernels:
            self.twins.setdefault(plain_text(m), []).append(m['name'])
        self.bodies = {}     # by the name of the first twin: what add_body returns

    def add_constants(self, m):
        name = c_name(m[2])
        self.head.append(f'static const unsigned char {name}[{m[3]}] __attribute__((aligned({m[1]}))) = {{{m[4]}}};')
        self.symbols[m[2]] = f'(uint64_t){name}'
        self.constants.append(name)

    def add_shared(self, text):
        for m in re.finditer(r'^\s*\.shared\s+\.align\s+\d+\s+\.(\w+)\s+([$\w]+)(?:\[(\d+)\])?;', text, re.M):
            self.shared[m[2]] = size_of(m[1]) * int(m[3] or 1)

    def add_function(self, m, line):
        """.func (result) name(parameters) { body }: memory of the caller's comes and goes by address."""
        e = Emitter(self)
        for t, name, n in FORMAL.findall(m['result'] + m['formal']):
            e.symbols[name], e.sizes[name] = f'(uint64_t){c_name(name)}', size_of(t) * int(n or 1)
        e.out.append(f'{signature(m)}\n{{\n    uint32_t carry_ = 0;')
        self.translate(e, m['body'], line, len(self.function_blocks), self.n_function_sites)
        self.function_blocks += e.blocks
        self.n_function_sites += self.n_sites - self.first_site

    def add_kernel(self, m, line):
        name, threads = m['name'], re.search(r'\.maxntid\s+(\d+)(?:\s*,\s*1){0,2}\s*\n', m['head'])
        if threads is None:
            raise Unknown(f'{name} without __launch_bounds__, or with a block of more than one dimension')
        twins = self.twins[plain_text(m)]
        if twins[0] == name:
            self.bodies[name] = self.add_body(m, line, len(twins) > 1)
        args_bytes, n_sites = self.bodies[twins[0]]
        is_bf16 = 'true' if HALF_OF.search(m['body']) and 'bf16' in HALF_OF.search(m['body'])[0] else 'false'
        self.out.append(f'static void {name}(const void *args_)\n{{\n    {twins[0]}_body(args_, {is_bf16}, {line});\n}}\n'
                        f'const emu_kernel {name}_kernel = {{"{name}", {threads[1]}, {args_bytes}, {name}, "{self.path}",\n'
                        f'    {twins[0]}_body_sites, {n_sites}, constants_' +
                        (f', {twins[0]}_body_blocks, sizeof {twins[0]}_body_blocks / 2 - 1, FUNCTION_SITES + {n_sites}' if self.counts else '') +
                        '};\n')

    def add_body(self, m, line, has_twins):
        """The function of a kernel; returns the bytes of its parameters, and its places that touch memory."""
        e = Emitter(self)
        e.has_twins = has_twins
        name = m['name']
        formal = re.fullmatch(r'\s*\.param\s+\.align\s+\d+\s+\.b8\s+([$\w]+)\[(\d+)\]\s*', m['formal'])
        if formal is None:
            raise Unknown(f'parameters of {name} that are not one structure')
        e.parameter = formal[1]
        e.symbols[formal[1]], e.sizes[formal[1]] = '(uint64_t)args_', int(formal[2])
        e.out.append(f'static void {name}_body(const void *args_, bool is_bf16_, unsigned line_)\n{{\n'
                     '    const uint64_t shared_ = (uint64_t)emu_shared_sized();\n'
                     '    uint32_t carry_ = 0;')
        used = set(re.findall(r'[$\w]+', re.sub(r'\.shared[^;]*;', '', m['body'])))
        self.add_shared(m['body'])
        for x in self.dynamic:
            e.symbols[x] = '0'
        for i, (x, n_bytes) in enumerate((x, n) for x, n in self.shared.items() if x in used):
            e.symbols[x] = f's{i}_'
            e.out.append(f'    const uint64_t s{i}_ = (uint64_t)emu_shared({n_bytes}) - shared_;')
        self.translate(e, m['body'], line, 'FUNCTION_BLOCKS', 'FUNCTION_SITES')
        if self.counts:  # an array has an element more, as there may be none
            self.out.append(f'static const uint16_t {name}_body_blocks[] = {{FUNCTION_BLOCK_SIZES {"".join(f"{n}, " for n in e.blocks)}0}};\n')
        return formal[2], self.n_sites - self.first_site

    def translate(self, e, body, line, first_block, first_site):
        self.first_site = self.n_sites
        try:
            e.translate(body, line)
        except Unknown as what:
            name = re.search(r'void (\w+?)(?:_body)?\(', e.out[0])[1]
            raise SystemExit(f'{self.path}:{e.line}: {name}: tool/ptx_to_c.py does not know {what}: add it there, and an example '
                             'to test/cuda/ptx_cases.py') from None
        own = re.search(r'void (\w+)\(', e.out[0])[1]
        n = self.n_sites - self.first_site
        names = {'sites_': f'{own}_sites'}
        if self.counts:
            names.update({'first_block_': first_block, 'first_site_': first_site})
        self.out += [f'static emu_site {own}_sites[{max(n, 1)}];', *(f'#define {x} {names[x]}' for x in names), *e.out, '}',
                     *(f'#undef {x}' for x in names), '']

    def c_text(self):
        constants = ''.join(f'{{{x}, sizeof {x}}}, ' for x in self.constants)
        counts = ['#define PTX_COUNTS', f'#define FUNCTION_BLOCKS {len(self.function_blocks)}', f'#define FUNCTION_SITES {self.n_function_sites}',
                  f'#define FUNCTION_BLOCK_SIZES {"".join(f"{n}, " for n in self.function_blocks)}'] if self.counts else []
        return '\n'.join(['/* Made by tool/ptx_to_c.py. */', *counts, '#include "cuda/ptx_run.h"', *self.head,
                          f'static const emu_constants constants_[] = {{{constants}{{NULL, 0}}}};', *self.out, ''])


ENTRY = re.compile(r'^(?:\.visible\s+)?\.entry\s+(?P<name>\w+)\((?P<formal>[^)]*)\)(?P<head>[^{;]*)\{(?P<body>.*?)^\}', re.M | re.S)
FUNC = re.compile(r'^(?:\.visible\s+|\.weak\s+)?\.func\s*(?P<result>\([^)]*\))\s*(?P<name>[$\w]+)\s*\((?P<formal>[^)]*)\)\s*\{(?P<body>.*?)^\}',
                  re.M | re.S)
FORMAL = re.compile(r'\.param\s+(?:\.align\s+\d+\s+)?\.(\w+)\s+([$\w]+)(?:\[(\d+)\])?')
IGNORED = re.compile(r'\s+|^\.func\s[^;{]*;|^\.(?:version|target|address_size)[^\n]*', re.M | re.S)
# What -lineinfo adds: positions in the source, their labels, and sections at the end.
LINES = re.compile(r'^[ \t]*\.(?:loc|file)\b[^\n]*|^\$L__(?:tmp|func_begin|func_end|info_string)\w*:[^\n]*|^\s*\.section\b.*\Z', re.M | re.S)
CONSTANTS = re.compile(r'^\.global\s+\.align\s+(\d+)\s+\.b8\s+([$\w]+)\[(\d+)\]\s*=\s*\{([^}]*)\};', re.M)
SHARED = re.compile(r'^\.shared\s[^;]*;', re.M)
EXTERN = re.compile(r'^\.extern\s+\.shared\s+\.align\s+\d+\s+\.b8\s+([$\w]+)\[\];', re.M)


def translate(path, counts):
    with open(path, encoding='utf-8') as f:
        text = LINES.sub('', re.sub(r'//[^\n]*', '', f.read()))
    module, at = Module(path, list(FUNC.finditer(text)), list(ENTRY.finditer(text)), counts), 0
    while at < len(text):
        line = text.count('\n', 0, at) + 1
        for pattern, add in ((IGNORED, lambda m: None), (EXTERN, lambda m: module.dynamic.add(m[1])),
                             (CONSTANTS, module.add_constants), (SHARED, lambda m: module.add_shared(m[0])),
                             (FUNC, lambda m: module.add_function(m, text.count('\n', 0, m.start('body')) + 1)),
                             (ENTRY, lambda m: module.add_kernel(m, text.count('\n', 0, m.start('body')) + 1))):
            m = pattern.match(text, at)
            if m is not None:
                try:
                    add(m)
                except Unknown as what:
                    raise SystemExit(f'{path}:{line}: tool/ptx_to_c.py does not know {what}') from None
                at = m.end()
                break
        else:
            raise SystemExit(f'{path}:{line}: tool/ptx_to_c.py does not know {text[at:at + 80].splitlines()[0]!r}')
    return module


def main():
    counts = '--count' in sys.argv[1:2]
    paths = sys.argv[1 + counts:]
    if len(paths) != 2 or paths[0].startswith('-'):
        raise SystemExit('\n'.join(__doc__.split('\n\n')[1:3]))
    module = translate(paths[0], counts)
    with open(paths[1], 'w', encoding='utf-8') as f:
        f.write(module.c_text())
    return 0


if __name__ == '__main__':
    sys.exit(main())

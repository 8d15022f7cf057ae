#!/usr/bin/env python3
"""Each instruction that tool/ptx_to_c.py translates, with given values and those expected of it.

usage: test/cuda/ptx_cases.py --write FILE.ptx    a kernel for each case
       test/cuda/ptx_cases.py LIBRARY.so          runs what was made of that file, and says what differs

A kernel has the 32 threads of a warp. Thread i takes its own row of the inputs, 64 bits each, and writes a row of outputs.
Expected values are worked out here from integers and fractions, by what "PTX ISA 9.0", chapter 9, says of an instruction.
"""
import ctypes
import math
import os
import random
import re
import struct
import subprocess
import sys
import tempfile
from fractions import Fraction

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', '..')
sys.path.insert(0, os.path.join(ROOT, 'tool'))
import ptx_to_c  # noqa: E402  (the list of instructions)

LANES = 32
WHOLE = [0, 1, 2, 3, 7, 31, 32, 33, 63, 64, 65, 100, 0x7f, 0x80, 0xff, 0x7fff, 0x8000, 0xffff, 0x7fffffff, 0x80000000, 0xffffffff,
         0xfffffffe, 0x12345678, 0xdeadbeef, 0x7fffffffffffffff, 0x8000000000000000, 0xffffffffffffffff, 0x123456789abcdef0]
NAN = float('nan')
FLOAT = [0.0, -0.0, 1.0, -1.0, 1.5, -2.5, 0.1, -0.3, 3.0, 1e-40, -1e-42, 2.0 ** -126, 3e38, -3e38, math.inf, -math.inf, NAN, 7.25,
         1e-20, 1e20, 123456.789, 2.0 ** 31, -2.0 ** 31, 2.0 ** 32, 4294967295.5, 2.5, -0.5, 0.49999997,
         1 + 2.0 ** -8, 1 + 3 * 2.0 ** -8, 1 + 2.0 ** -11, 1 + 3 * 2.0 ** -11, 65504.0, 65519.0, 65520.0, 2.0 ** -25, 3 * 2.0 ** -25]
N_ROUNDS = 4


# ---- numbers ----

def bits_of(x, t):
    if t == 'f32':
        return struct.unpack('<I', struct.pack('<f', to_f32(x)))[0]
    return struct.unpack('<Q', struct.pack('<d', x))[0]


def float_of(b, t):
    return struct.unpack('<f', struct.pack('<I', b))[0] if t == 'f32' else struct.unpack('<d', struct.pack('<Q', b))[0]


def rounded(x, digits, least, mode='n'):
    """A fraction as a multiple of a power of two, of so many digits, at least 2 ** least: to the nearest, zero, or below."""
    if x == 0:
        return Fraction(0)
    power = math.floor(math.log2(abs(x.numerator)) - math.log2(x.denominator)) - digits - 2
    while abs(x) >= Fraction(2) ** (power + digits):
        power += 1
    unit = Fraction(2) ** max(power, least)
    n = x / unit
    whole = {'n': round(n), 'z': math.trunc(n), 'm': math.floor(n)}[mode]
    return whole * unit


def to_f32(x, mode='n'):
    if isinstance(x, float) and not math.isfinite(x):
        return x
    r = rounded(Fraction(x), 24, -149, mode)
    if abs(r) >= Fraction(2) ** 128:
        return math.copysign(math.inf, r)
    return math.copysign(float(r), float(x)) if x == 0 or r == 0 else float(r)


def fused(a, b, c, t, mode='n'):
    """a b + c, rounded once."""
    if not all(map(math.isfinite, (a, b, c))):
        return a * b + c if math.isfinite(c) or not (math.isfinite(a) and math.isfinite(b)) else c
    x = Fraction(a) * Fraction(b) + Fraction(c)
    if x == 0:
        signs = {math.copysign(1, a) * math.copysign(1, b), math.copysign(1, c)}
        return 0.0 if signs == {1.0} else -0.0 if signs == {-1.0} or mode == 'm' else 0.0
    if t == 'f32':
        r = to_f32(x, mode)
        return r if r != 0 else math.copysign(0.0, x)
    try:
        return float(x)
    except OverflowError:
        return math.copysign(math.inf, x)


def quotient(a, b):
    if math.isnan(a) or math.isnan(b) or (a == 0 and b == 0) or (math.isinf(a) and math.isinf(b)):
        return NAN
    sign = math.copysign(1, a) * math.copysign(1, b)
    if b == 0 or math.isinf(a):
        return sign * math.inf
    if math.isinf(b) or a == 0:
        return sign * 0.0
    return Fraction(a) / Fraction(b)


def root(a):
    return NAN if math.isnan(a) or a < 0 else math.sqrt(a)


def flushed(x):
    return math.copysign(0.0, x) if abs(x) < 2.0 ** -126 else x


def signed(x, n_bits):
    x &= 2 ** n_bits - 1
    return x - 2 ** n_bits if x >> n_bits - 1 else x


def half_bits(x, kind):
    """bf16 or f16 of a number, to the nearest."""
    if math.isnan(x):
        return 0x7fff
    sign = 0x8000 if math.copysign(1, x) < 0 else 0
    digits, exponent_bits, least = (8, 8, -133) if kind == 'bf16' else (11, 5, -24)
    if math.isinf(x):
        return sign | (2 ** exponent_bits - 1) << digits - 1
    r = abs(rounded(Fraction(x), digits, least))
    if r >= Fraction(2) ** (2 ** (exponent_bits - 1)):
        return sign | (2 ** exponent_bits - 1) << digits - 1
    bias = 2 ** (exponent_bits - 1) - 1
    power = least
    while r >= Fraction(2) ** (power + digits):
        power += 1
    n = int(r / Fraction(2) ** power)
    if n < 2 ** (digits - 1):
        return sign | n
    return sign | (power + digits - 1 + bias) << digits - 1 | n - 2 ** (digits - 1)


def half_value(b, kind):
    if kind == 'bf16':
        return float_of(b << 16, 'f32')
    return struct.unpack('<e', struct.pack('<H', b))[0]


# ---- cases ----

class Case:
    """`text` in terms of a0, a1, ... (inputs of these types) and d0, d1, ...; want(lane, rows) of the outputs."""

    def __init__(self, text, inputs, outputs, want, declared='', ulps=0, values=None):
        self.text, self.inputs, self.outputs, self.want = text, inputs, outputs, want
        self.declared, self.ulps, self.values = declared, ulps, values


CASES = []
draws = random.Random(1)


def each(text, inputs, outputs, function, **more):
    """Of each lane by itself."""
    def want(lane, rows):
        result = function(*rows[lane])
        return result if isinstance(result, tuple) else (result,)
    CASES.append(Case(text, inputs.split(), outputs.split(), want, **more))


def of_type(function, types):
    """The function over numbers of these types, from the bits."""
    def over_bits(*bits):
        return function(*(signed(b, int(t[1:])) if t[0] == 's' else float_of(b, t) if t in ('f32', 'f64') else
                          b & 2 ** int(t[1:]) - 1 if t != 'pred' else b for b, t in zip(bits, types.split())))
    return over_bits


def simple(name, types, out, function, **more):
    """`name d, a0, a1, ...` of one result."""
    n = len(types.split())
    each(f'{name} d0, {", ".join(f"a{i}" for i in range(n))};', types, out, of_type(function, types), **more)


def whole_numbers():
    for t in ('s32', 's64', 'u32', 'u64'):
        simple(f'add.{t}', f'{t} {t}', t, lambda a, b: a + b)
        simple(f'sub.{t}', f'{t} {t}', t, lambda a, b: a - b)
        simple(f'mul.lo.{t}', f'{t} {t}', t, lambda a, b: a * b)
    simple('mad.lo.s32', 's32 s32 s32', 's32', lambda a, b, c: a * b + c)
    simple('mul.hi.u32', 'u32 u32', 'u32', lambda a, b: a * b >> 32)
    simple('mul.hi.u64', 'u64 u64', 'u64', lambda a, b: a * b >> 64)
    simple('mul.wide.s32', 's32 s32', 's64', lambda a, b: a * b)
    simple('mul.wide.u16', 'u16 u16', 'u32', lambda a, b: a * b)
    simple('mul.wide.u32', 'u32 u32', 'u64', lambda a, b: a * b)
    for t in ('s32', 's64', 'u32', 'u64'):  # by what is not 0
        part = lambda a, b: abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)
        for op, function in (('div', part), ('rem', lambda a, b, part=part: a - b * part(a, b))):
            if f'{op}.{t}' in ptx_to_c.INSTRUCTIONS:
                simple(f'{op}.{t}', f'{t} {t}', t, function, values=lambda i, k: draws.choice(WHOLE) | (i == 1))
    for t in ('s32', 's64', 'u32', 'u64'):
        for op, function in (('min', min), ('max', max)):
            if f'{op}.{t}' in ptx_to_c.INSTRUCTIONS:
                simple(f'{op}.{t}', f'{t} {t}', t, function)
    for n in ('16', '32', '64'):
        for op, function in (('and', lambda a, b: a & b), ('or', lambda a, b: a | b), ('xor', lambda a, b: a ^ b)):
            if f'{op}.b{n}' in ptx_to_c.INSTRUCTIONS:
                simple(f'{op}.b{n}', f'u{n} u{n}', f'u{n}', function)
    for op, function in (('and', lambda a, b: a & b), ('or', lambda a, b: a | b), ('xor', lambda a, b: a ^ b)):
        simple(f'{op}.pred', 'pred pred', 'pred', function)
    simple('shl.b16', 'u16 u32', 'u16', lambda a, b: a << b if b < 16 else 0)
    simple('shr.u16', 'u16 u32', 'u16', lambda a, b: a >> b if b < 16 else 0)
    simple('shr.s16', 's16 u32', 's16', lambda a, b: a >> min(b, 15))
    each('shl.b16 d0, a0, 7; shr.u16 d1, a0, 3; shr.s16 d2, a0, 8;', 'u16', 'u16 u16 s16',
         lambda a: ((a << 7) % 2 ** 16, a >> 3, signed(a, 16) >> 8))
    for n in (32, 64):
        simple(f'not.b{n}', f'u{n}', f'u{n}', lambda a: ~a)
        simple(f'shl.b{n}', f'u{n} u32', f'u{n}', lambda a, b, n=n: a << b if b < n else 0)
        simple(f'shr.u{n}', f'u{n} u32', f'u{n}', lambda a, b, n=n: a >> b if b < n else 0)
        simple(f'shr.s{n}', f's{n} u32', f's{n}', lambda a, b, n=n: a >> min(b, n - 1))
        each(f'shl.b{n} d0, a0, 7; shr.u{n} d1, a0, {n}; shr.s{n} d2, a0, 40;', f'u{n}', f'u{n} u{n} s{n}',
             lambda a, n=n: ((a << 7) % 2 ** n, 0, signed(a, n) >> min(40, n - 1)))
        simple(f'neg.s{n}', f's{n}', f's{n}', lambda a: -a)
    simple('abs.s32', 's32', 's32', abs)
    simple('not.pred', 'pred', 'pred', lambda a: 1 - a)
    simple('clz.b64', 'u64', 'u32', lambda a: 64 - a.bit_length())
    simple('popc.b32', 'u32', 'u32', lambda a: bin(a).count('1'))
    simple('bfi.b32', 'u32 u32 u32 u32', 'u32', insert_bits)
    each('add.cc.u32 d0, a0, a2; addc.cc.u32 d1, a1, a3; addc.u32 d2, 0, 0;', 'u32 u32 u32 u32', 'u32 u32 u32',
         lambda a, b, c, d: words((a | b << 32) + (c | d << 32), 3))
    each('sub.cc.u32 d0, a0, a2; subc.cc.u32 d1, a1, a3; subc.u32 d2, 0, 0;', 'u32 u32 u32 u32', 'u32 u32 u32',
         lambda a, b, c, d: words((a | b << 32) - (c | d << 32), 3))
    each('mad.lo.cc.u32 d0, a0, a1, a2; madc.hi.cc.u32 d1, a0, a1, a3; addc.u32 d2, 0, 0;', 'u32 u32 u32 u32', 'u32 u32 u32',
         lambda a, b, c, d: words(a * b + (c | d << 32), 3))
    each('mad.lo.cc.u32 d0, a0, a1, a2; madc.hi.u32 d1, a0, a1, a3;', 'u32 u32 u32 u32', 'u32 u32',
         lambda a, b, c, d: words(a * b + (c | d << 32), 2))
    each('add.cc.u32 d0, a0, a1; madc.lo.cc.u32 d1, a2, a3, a0; addc.u32 d2, 0, 0;', 'u32 u32 u32 u32', 'u32 u32 u32',
         lambda a, b, c, d: (a + b, (c * d % 2 ** 32) + a + (a + b >> 32), (c * d % 2 ** 32) + a + (a + b >> 32) >> 32))


def words(x, n):
    return tuple(x >> 32 * i & 0xffffffff for i in range(n))


def insert_bits(a, b, position, length):
    position, length = position & 255, length & 255
    for i in range(length):
        if position + i < 32:
            b = b & ~(1 << position + i) | (a >> i & 1) << position + i if i < 32 else b & ~(1 << position + i)
    return b


def floats():
    for t in ('f32', 'f64'):
        simple(f'neg.{t}', t, t, lambda a: -a)
        simple(f'abs.{t}', t, t, abs)
        for rounding in ('', '.rn')[:2 if t == 'f32' else 1]:
            simple(f'add{rounding}.{t}', f'{t} {t}', t, lambda a, b, t=t: fused(a, 1.0, b, t))
            simple(f'sub{rounding}.{t}', f'{t} {t}', t, lambda a, b, t=t: fused(a, 1.0, -b, t))
        for name in (f'mul.{t}', f'mul.rn.{t}'):
            simple(name, f'{t} {t}', t, lambda a, b, t=t: fused(a, b, -0.0 if are_opposite(a, b) else 0.0, t))
        simple(f'fma.rn.{t}', f'{t} {t} {t}', t, lambda a, b, c, t=t: fused(a, b, c, t))
        simple(f'rcp.rn.{t}', t, t, lambda a, t=t: to_f32(quotient(1.0, a)) if t == 'f32' else float(quotient(1.0, a)))
    simple('div.rn.f32', 'f32 f32', 'f32', lambda a, b: to_f32(quotient(a, b)))
    simple('sqrt.rn.f32', 'f32', 'f32', lambda a: to_f32(root(a)))
    simple('add.rz.f32', 'f32 f32', 'f32', lambda a, b: toward(a, b, 'z'), values=finite)
    simple('fma.rm.f32', 'f32 f32 f32', 'f32', lambda a, b, c: fused(a, b, c, 'f32', 'm'), values=finite)
    simple('ex2.approx.ftz.f32', 'f32', 'f32', lambda a: power_of_two(flushed(a)), ulps=2)
    simple('rcp.approx.ftz.f32', 'f32', 'f32', lambda a: flushed(to_f32(quotient(1.0, flushed(a)))), ulps=1)
    simple('copysign.f32', 'f32 f32', 'f32', lambda a, b: NAN if math.isnan(b) else math.copysign(b, a))
    for op, function in (('min', min), ('max', max)):
        simple(f'{op}.f32', 'f32 f32', 'f32', lambda a, b, f=function: b if math.isnan(a) else a if math.isnan(b) else
               f(a, b, key=lambda x: (x, math.copysign(1, x))))
    simple('cvt.sat.f32.f32', 'f32', 'f32', lambda a: 0.0 if math.isnan(a) or a <= 0 else min(a, 1.0))


def are_opposite(a, b):
    return math.copysign(1, a) * math.copysign(1, b) < 0


def finite(i, k):
    return bits_of(draws.choice([x for x in FLOAT if abs(x) < 1e30]) * draws.choice([1.0, 1.0000001, 0.7]), 'f32')


def toward(a, b, mode):
    x = Fraction(a) + Fraction(b)
    return to_f32(x, mode) if x != 0 else 0.0 if math.copysign(1, a) > 0 or math.copysign(1, b) > 0 else -0.0


def power_of_two(a):
    if math.isnan(a):
        return NAN
    return 0.0 if a < -126 else math.inf if a >= 128 else to_f32(2.0 ** a)


def compares():
    tests = {'eq': lambda a, b: a == b, 'ne': lambda a, b: a != b, 'lt': lambda a, b: a < b, 'le': lambda a, b: a <= b,
             'gt': lambda a, b: a > b, 'ge': lambda a, b: a >= b}
    either = lambda a, b: math.isnan(a) or math.isnan(b)
    for name in ptx_to_c.INSTRUCTIONS:
        if not name.startswith('setp.'):
            continue
        _, op, t = name.split('.')
        kind = t.replace('b', 'u')
        if op in tests:
            function = tests[op]
        elif op == 'num':
            function = lambda a, b: not either(a, b)
        elif op == 'nan':
            function = either
        else:  # or one is no number
            function = lambda a, b, f=tests[op[:2]]: f(a, b) or either(a, b)
        simple(name, f'{kind} {kind}', 'pred', lambda a, b, f=function: int(f(a, b)))
    for t in ('b16', 'b32', 'b64', 'u32', 'u64', 'f32', 'f64'):
        kind = t.replace('b', 'u')
        each(f'selp.{t} d0, a0, a1, a2;', f'{kind} {kind} pred', kind, lambda a, b, p: a if p else b)


def conversions():
    for to, of in (('s64', 's32'), ('u64', 'u32'), ('u32', 'u64'), ('u32', 'u16'), ('u16', 'u32'), ('s32', 's16')):
        simple(f'cvt.{to}.{of}', of, to, lambda a: a)
    for to, of in (('u16', 'u8'), ('s16', 's8'), ('u32', 'u8'), ('s32', 's8')):  # the lowest byte of a wider register
        each(f'cvt.{to}.{of} d0, a0;', 'u16', to, lambda a, of=of: signed(a, 8) if of == 's8' else a & 255)
    for of in ('u16', 's16', 's32', 's64', 'u32', 'f64'):
        simple(f'cvt.rn.f32.{of}', of, 'f32', lambda a: to_f32(a if isinstance(a, float) else Fraction(a)))
    for of in ('s32', 's64', 'u32'):
        simple(f'cvt.rn.f64.{of}', of, 'f64', float)
    simple('cvt.f64.f32', 'f32', 'f64', lambda a: a)
    for kind in ('bf16', 'f16'):
        simple(f'cvt.rn.{kind}.f32', 'f32', 'u16', lambda a, k=kind: half_bits(a, k))
    simple('cvt.f32.f16', 'u16', 'f32', lambda a: half_value(a, 'f16'))
    limited = lambda a, least, most, f: 0 if math.isnan(a) else least if a <= least else most if a >= most else f(a)
    simple('cvt.rni.s32.f64', 'f64', 's32', lambda a: limited(a, -2 ** 31, 2 ** 31 - 1, round))
    simple('cvt.rzi.u32.f64', 'f64', 'u32', lambda a: limited(a, 0, 2 ** 32 - 1, math.trunc))
    simple('cvt.rzi.u64.f64', 'f64', 'u64', lambda a: limited(a, 0, 2 ** 64 - 1, math.trunc))


def moves():
    for t in ('b16', 'u16', 'b32', 'u32', 'b64', 'u64', 'f32', 'f64', 'pred'):
        kind = t.replace('b', 'u')
        each(f'mov.{t} d0, a0;', kind, kind, lambda a: a)
    each('mov.b64 d0, {a0, a1};', 'u32 u32', 'u64', lambda a, b: a | b << 32)
    each('mov.b32 d0, {a0, a1};', 'u16 u16', 'u32', lambda a, b: a | b << 16)
    each('mov.b64 {d0, d1}, a0;', 'u64', 'u32 u32', lambda a: (a & 0xffffffff, a >> 32))
    each('mov.b32 {_, d0}, a0;', 'u32', 'u16', lambda a: a >> 16)
    each('mov.f32 d0, 0f3FC00000; mov.f64 d1, 0dBFF8000000000000; mov.u32 d2, -1; mov.u64 d3, 0x10;', 'u32', 'f32 f64 u32 u64',
         lambda a: (1.5, -1.5, -1, 16))
    CASES.append(Case('mov.u32 d0, %tid.x; mov.u32 d1, %ntid.x; mov.u32 d2, %ctaid.x; mov.u32 d3, %nctaid.x;', ['u32'], ['u32'] * 4,
                      lambda lane, rows: (lane, LANES, 0, 1)))
    each('setp.ne.s32 p, a0, 0; mov.u32 d0, 1; @p bra $L_end; mov.u32 d0, 2; $L_end:', 'u32', 'u32',
         lambda a: 1 if a else 2, declared='.reg .pred p;')
    each('mov.u32 d0, 1; bra.uni $L_next; mov.u32 d0, 2; $L_next:', 'u32', 'u32', lambda a: 1)
    each('setp.eq.s32 p, a0, 0; mov.u32 d0, a0; @!p add.s32 d0, d0, 5;', 'u32', 'u32', lambda a: a + 5 if a else 0,
         declared='.reg .pred p;')
    for t, name in (('u32', 'add_words'), ('f64', 'add_doubles')):
        register = {'u32': 'b32', 'f64': 'f64'}[t]
        each(f'{{ .param .b{t[1:]} x; st.param.{register} [x], a0; .param .b{t[1:]} y; call.uni (y), {name}, (x); '
             f'ld.param.{register} d0, [y]; }}', t, t, of_type(lambda a: a + a, t))


def memory():
    """Arrays of the block; a thread's row of them is of 16 bytes, beginning with its number's."""
    row = 'mov.u32 r, %tid.x; shl.b32 r, r, 4; mov.u32 q, shared; add.s32 r, r, q; '
    shared = '.reg .b32 r, q; .shared .align 16 .b8 shared[1024];'
    for t in ('u32', 'f32', 'u64', 'f64'):
        each(f'{row}st.shared.{t} [r+8], a0; ld.shared.{t} d0, [r+8];', t, t, lambda a: a, declared=shared)
    each(f'{row}st.shared.u32 [r], a0; ld.shared.s32 d0, [r];', 'u32', 'u32', lambda a: a, declared=shared)
    each(f'{row}st.shared.v2.u32 [r+8], {{a0, a1}}; ld.shared.v2.u32 {{d0, d1}}, [r+8]; ld.shared.u64 d2, [r+8];', 'u32 u32',
         'u32 u32 u64', lambda a, b: (a, b, a | b << 32), declared=shared)
    each(f'{row}st.shared.f32 [r], a0; st.shared.f32 [r+4], a1; st.shared.f32 [r+8], a2; st.shared.f32 [r+12], a3; '
         'ld.shared.v4.f32 {d0, d1, d2, d3}, [r]; ld.shared.v2.f32 {d4, d5}, [r+8];', 'f32 f32 f32 f32', 'f32 ' * 6,
         lambda a, b, c, d: (a, b, c, d, c, d), declared=shared)
    each('.local .align 8 .b8 own[16]; mov.u64 r, own; st.local.u64 [r+8], a0; ld.local.u64 d0, [r+8]; st.local.u64 [own], a1; '
         'ld.local.u64 d1, [own];', 'u64 u64', 'u64 u64', lambda a, b: (a, b), declared='.reg .b64 r;')
    place = ('mov.u32 q, %tid.x; mul.wide.u32 r, q, 32; ld.param.u64 s, [PARAM+16]; cvta.to.global.u64 s, s; add.s64 r, r, s; ')
    own = '.reg .b32 q; .reg .b64 r, s;'
    for t, kind in (('u16', 'u16'), ('u32', 'u32'), ('f32', 'f32')):
        each(f'{place}st.global.{t} [r+4], a0; ld.global.{t} d0, [r+4];', kind, kind, lambda a: a, declared=own)
    each(f'{place}st.global.u8 [r+4], a0; st.global.u8 [r+5], a1; ld.global.u16 d0, [r+4];', 'u16 u16', 'u16',
         lambda a, b: a & 255 | (b & 255) << 8, declared=own)
    for t, wanted in (('u8', lambda a: a & 255), ('s8', lambda a: signed(a, 8))):
        each(f'{place}st.global.u16 [r+4], a0; ld.global.{t} d0, [r+4];', 'u16', t.replace('8', '16'), wanted, declared=own)
    each(f'{place}st.global.u32 [r+4], a0; ld.global.s32 d0, [r+4];', 'u32', 'u32', lambda a: a, declared=own)
    each(f'{place}st.global.u64 [r+8], a0; ld.global.nc.u64 d0, [r+8]; ld.global.u64 d1, [r+8];', 'u64', 'u64 u64',
         lambda a: (a, a), declared=own)
    each(f'{place}st.global.f64 [r], a0; st.global.f64 [r+8], a1; ld.global.nc.v2.f64 {{d0, d1}}, [r];', 'f64 f64', 'f64 f64',
         lambda a, b: (a, b), declared=own)
    each(f'{place}st.f32 [r], a0; ld.f32 d0, [r];', 'f32', 'f32', lambda a: a, declared=own)
    each(row + 'cvt.u64.u32 s, r; cvta.shared.u64 s, s; st.f32 [s], a0; cvta.to.shared.u64 s, s; cvt.u32.u64 r, s; '
         'ld.shared.f32 d0, [r];', 'f32', 'f32', lambda a: a, declared=shared + '.reg .b64 s;')
    for t in ('u16', 'u32', 'f32'):
        each(f'{place}st.global.v4.{t} [r], {{a0, a1, a2, a3}}; ld.global.v4.{t} {{d0, d1, d2, d3}}, [r];', f'{t} ' * 4, f'{t} ' * 4,
             lambda *a: a, declared=own)
    parameters = {'u8': 1, 'u32': 0x44332211, 'u64': 0x8877665544332211, 'b32': 0x44332211, 'f32': 0x44332211,
                  'f64': 0x8877665544332211}
    for t, value in parameters.items():  # PARAM + 24 has the bytes 0x11, 0x22, ...
        want = 0x11 if t == 'u8' else value
        each(f'ld.param.{t} d0, [PARAM+24];', 'u32', {'u8': 'u16', 'b32': 'u32'}.get(t, t), lambda a, v=want: v)
    each('ld.param.v2.u8 {d0, d1}, [PARAM+24]; ld.param.v2.u32 {d2, d3}, [PARAM+24]; ld.param.v2.f32 {d4, d5}, [PARAM+24];', 'u32',
         'u16 u16 u32 u32 f32 f32', lambda a: (0x11, 0x22) + 2 * (0x44332211, 0x88776655))


def warps():
    word = 'mov.u32 r, shared; '
    shared = '.reg .b32 r; .shared .align 16 .b8 shared[1024];'
    zeroed = f'{word}st.shared.u32 [r], 0; bar.sync 0; '
    CASES.append(Case(f'{zeroed}atom.shared.add.u32 d0, [r], a0; bar.sync 0; ld.shared.u32 d1, [r];', ['u32'], ['u32', 'u32'],
                      lambda lane, rows: (None, sum(x[0] for x in rows)), declared=shared))
    CASES.append(Case(f'{zeroed}atom.shared.max.s32 d0, [r], a0; bar.sync 0; ld.shared.u32 d1, [r];', ['u32'], ['u32', 'u32'],
                      lambda lane, rows: (None, max([0] + [signed(x[0], 32) for x in rows])), declared=shared))
    CASES.append(Case('ld.param.u64 s, [PARAM+16]; cvta.to.global.u64 s, s; st.global.u64 [s], 0; bar.sync 0; '
                      'atom.global.add.u64 d0, [s], a0; bar.sync 0; ld.global.nc.u64 d1, [s];', ['u64'], ['u64', 'u64'],
                      lambda lane, rows: (None, sum(x[0] for x in rows)), declared='.reg .b64 s;'))
    CASES.append(Case('mov.u32 r, %tid.x; shl.b32 r, r, 2; mov.u32 q, shared; add.s32 r, r, q; st.shared.u32 [r], a0; '
                      'bar.warp.sync -1; mov.u32 r, %laneid; xor.b32 r, r, 5; shl.b32 r, r, 2; add.s32 r, r, q; '
                      'ld.shared.u32 d0, [r];', ['u32'], ['u32'], lambda lane, rows: (rows[lane ^ 5][0],),
                      declared=shared + '.reg .b32 q;'))
    for by in (1, 5, 16):
        CASES.append(Case(f'shfl.sync.bfly.b32 d0, a0, {by}, 31, -1;', ['u32'], ['u32'],
                          lambda lane, rows, by=by: (rows[lane ^ by][0],)))
        CASES.append(Case(f'shfl.sync.up.b32 d0|d1, a0, {by}, 0, -1;', ['u32'], ['u32', 'pred'],
                          lambda lane, rows, by=by: (rows[lane - by if lane >= by else lane][0], int(lane >= by))))
    for at in (0, 9, 31):
        CASES.append(Case(f'shfl.sync.idx.b32 d0|d1, a0, {at}, 31, -1;', ['u32'], ['u32', 'pred'],
                          lambda lane, rows, at=at: (rows[at][0], 1)))
    CASES.append(Case('mov.u32 r, %laneid; mul.lo.s32 r, r, 7; shfl.sync.idx.b32 d0, a0, r, 6175, -1;', ['u32'], ['u32'],
                      lambda lane, rows: (rows[lane & 24 | lane * 7 & 7][0],), declared='.reg .b32 r;'))  # parts of 8 lanes
    CASES.append(Case('and.b32 r, a0, 1; setp.ne.s32 p, r, 0; vote.sync.ballot.b32 d0, p, -1;', ['u32'], ['u32'],
                      lambda lane, rows: (sum((x[0] & 1) << i for i, x in enumerate(rows)),),
                      declared='.reg .b32 r; .reg .pred p;'))
    CASES.append(Case('shfl.sync.bfly.b32 d0|d1, a0, 8, 6175, -1;', ['u32'], ['u32', 'pred'],  # parts of 8 lanes: none beyond them
                      lambda lane, rows: (rows[lane ^ 8 if lane & 8 else lane][0], int(lane & 8 != 0))))
    for copy, n in (('ca', 4), ('cg', 16)):
        for there in (n, 0):
            values = ', '.join(f'd{i}' for i in range(4))
            zeros = ' '.join(f'st.shared.u32 [r+{4 * i}], 77;' for i in range(4))
            CASES.append(Case(
                f'mov.u32 r, %tid.x; shl.b32 r, r, 4; mov.u32 q, shared; add.s32 r, r, q; {zeros} '
                f'mov.u32 q, %tid.x; mul.wide.u32 s, q, 32; ld.param.u64 t, [PARAM+0]; cvta.to.global.u64 t, t; add.s64 s, s, t; '
                f'cp.async.{copy}.shared.global [r], [s], {n}, {there}; cp.async.commit_group; cp.async.wait_group 0; '
                + ' '.join(f'ld.shared.u32 d{i}, [r+{4 * i}];' for i in range(4)), ['u64'] * 4, ['u32'] * 4,
                lambda lane, rows, n=n, there=there: tuple(
                    (rows[lane][i // 2] >> 32 * (i % 2) & 0xffffffff if there else 0) if 4 * i < n else 77 for i in range(4)),
                declared=shared + '.reg .b32 q; .reg .b64 s, t;'))
    for turned in ('', 'trans.'):
        CASES.append(Case(
            'mov.u32 r, %tid.x; shl.b32 r, r, 4; mov.u32 q, shared; add.s32 r, r, q; st.shared.u64 [r], a0; st.shared.u64 [r+8], a1; '
            f'bar.sync 0; ldmatrix.sync.aligned.m8n8.x4.{turned}shared.b16 {{d0, d1, d2, d3}}, [r];', ['u64', 'u64'], ['u32'] * 4,
            lambda lane, rows, turned=turned: matrices(lane, rows, turned != ''), declared=shared + '.reg .b32 q;'))
    for kind in ('bf16', 'f16'):
        CASES.append(Case(
            f'mov.f32 d0, a6; mov.f32 d1, a7; mov.f32 d2, a8; mov.f32 d3, a9; '
            f'mma.sync.aligned.m16n8k16.row.col.f32.{kind}.{kind}.f32 {{d0, d1, d2, d3}}, {{a0, a1, a2, a3}}, {{a4, a5}}, '
            '{d0, d1, d2, d3};', ['u32'] * 6 + ['f32'] * 4, ['f32'] * 4, lambda lane, rows, k=kind: product(lane, rows, k),
            values=lambda i, k, kind=kind: bits_of(float(draws.randint(-8, 8)), 'f32') if i >= 6 else
            half_bits(float(draws.randint(-4, 4)), kind) | half_bits(float(draws.randint(-4, 4)), kind) << 16))


def matrices(lane, rows, is_turned):
    """Thread i of the first 8 has row i of the first matrix, and so on; a thread takes elements 2t and 2t + 1 of row g."""
    def element(matrix, r, c):
        return rows[8 * matrix + r][c // 4] >> 16 * (c % 4) & 0xffff
    g, t = divmod(lane, 4)
    return tuple(sum((element(m, 2 * t + e, g) if is_turned else element(m, g, 2 * t + e)) << 16 * e for e in range(2))
                 for m in range(4))


def product(lane, rows, kind):
    """Figures of "Matrix Fragments for mma.m16n8k16": whole numbers, so that no order of sums matters."""
    def a(r, c):
        word = rows[r % 8 * 4 + c % 8 // 2][(r >= 8) + 2 * (c >= 8)]
        return half_value(word >> 16 * (c % 2) & 0xffff, kind)

    def b(r, c):
        word = rows[c * 4 + r % 8 // 2][4 + (r >= 8)]
        return half_value(word >> 16 * (r % 2) & 0xffff, kind)
    g, t = divmod(lane, 4)
    return tuple(float_of(rows[lane][6 + e], 'f32') + sum(a(g + 8 * (e // 2), k) * b(k, 2 * t + e % 2) for k in range(16))
                 for e in range(4))


for part in (whole_numbers, floats, compares, conversions, moves, memory, warps):
    part()
ARGS_BYTES = 32


def register(t):
    return {'pred': 'pred', 'f32': 'f32', 'f64': 'f64'}.get(t, 'b' + t[1:])


def kernel(number, case):
    lines, name = [], f'case_{number}'
    out_types = case.outputs
    for prefix, types in (('a', case.inputs), ('d', out_types)):
        lines += [f'.reg .{register(t)} {prefix}{i};' for i, t in enumerate(types)]
    lines += ['.reg .b32 w; .reg .b64 x, in, out;', *(f'{d.strip()};' for d in case.declared.split(';') if d.strip()),
              f'ld.param.u64 in, [{name}_param_0]; ld.param.u64 out, [{name}_param_0+8]; cvta.to.global.u64 in, in; '
              'cvta.to.global.u64 out, out; mov.u32 w, %tid.x;',
              f'mul.wide.u32 x, w, {8 * len(case.inputs)}; add.s64 in, in, x; mul.wide.u32 x, w, {8 * len(out_types)}; '
              'add.s64 out, out, x;']
    for i, t in enumerate(case.inputs):
        lines.append(f'ld.global.nc.u64 x, [in+{8 * i}];')
        lines.append({'16': f'cvt.u32.u64 w, x; cvt.u16.u32 a{i}, w;', '32': f'cvt.u32.u64 a{i}, x;', '64': f'mov.b64 a{i}, x;',
                      'ed': f'setp.ne.s64 a{i}, x, 0;'}[t[-2:]] if t != 'f32' else f'cvt.u32.u64 w, x; mov.b32 a{i}, w;')
    lines.append(case.text.replace('PARAM', f'{name}_param_0').replace('$L_', f'$L_{number}_'))
    for i, t in enumerate(out_types):
        lines.append({'16': f'cvt.u32.u16 w, d{i}; cvt.u64.u32 x, w;', '32': f'cvt.u64.u32 x, d{i};', '64': f'mov.b64 x, d{i};',
                      'ed': f'selp.u32 w, 1, 0, d{i}; cvt.u64.u32 x, w;'}[t[-2:]] if t != 'f32'
                     else f'mov.b32 w, d{i}; cvt.u64.u32 x, w;')
        lines.append(f'st.global.u64 [out+{8 * i}], x;')
    body = '\n'.join(lines + ['ret;'])
    # names of registers as the compiler's
    names = set(re.findall(r'\b(?:[ad]\d|[wxpqrst]|in|out)\b', ' '.join(re.findall(r'\.reg [^;]*;', body))))
    body = re.sub(r'(?<![%$.\w])(' + '|'.join(sorted(names, key=len, reverse=True)) + r')(?![\w.])', r'%\1', body)
    body = re.sub(r'\.param (\.b\d\d) %', r'.param \1 ', body)
    if 'call.uni' in body:
        body = re.sub(r'%([xy])(?=[\];),])', lambda m: m[1] if m.start() > body.index('{ .param') and m.start() < body.index('; }')
                      else m[0], body)
    body = re.sub(r'(?<![.\w])shared(?=[\[,;\]])', f'{name}_shared', body)
    return (f'.visible .entry {name}(\n\t.param .align 8 .b8 {name}_param_0[{ARGS_BYTES}]\n)\n.maxntid {LANES}, 1, 1\n{{\n{body}\n}}\n')


FUNCTIONS = '''.func (.param .b32 result) add_words(.param .b32 x)
{
.reg .b32 %r1;
ld.param.b32 %r1, [x];
add.s32 %r1, %r1, %r1;
st.param.b32 [result], %r1;
ret;
}
.func (.param .b64 result) add_doubles(.param .b64 x)
{
.reg .f64 %fd1;
ld.param.f64 %fd1, [x];
add.f64 %fd1, %fd1, %fd1;
st.param.f64 [result], %fd1;
ret;
}
'''


def ptx_text():
    return '.version 9.0\n.target sm_80\n.address_size 64\n' + FUNCTIONS + '\n'.join(kernel(i, c) for i, c in enumerate(CASES))


# ---- runs ----

class Kernel(ctypes.Structure):
    pass


def same(got, want, t, ulps):
    if want is None:
        return True
    if t in ('f32', 'f64') and isinstance(want, float):
        if math.isnan(want):
            return math.isnan(float_of(got, t))
        expected = bits_of(want, t)
        return got == expected or (ulps > 0 and abs(got - expected) <= ulps)
    n_bits = {'pred': 1}.get(t) or int(t[1:])
    return got == int(want) & 2 ** n_bits - 1


def shown(x, t):
    return f'{float_of(x, t)!r} ({x:#x})' if t in ('f32', 'f64') else f'{x:#x}'


def input_of(case, i, k):
    """Number k of the values of input i: those of the list in turn, then any."""
    t = case.inputs[i]
    if case.values is not None:
        return case.values(i, k) & 2 ** int(t[1:]) - 1
    if t == 'pred':
        return draws.randint(0, 1)
    if t in ('f32', 'f64'):
        x = FLOAT[k] if i == 0 and k < len(FLOAT) else draws.choice(FLOAT) if draws.random() < 0.7 else draws.uniform(-4, 4)
        return bits_of(x, t)
    x = WHOLE[k] if i == 0 and k < len(WHOLE) else draws.choice(WHOLE) if draws.random() < 0.7 else draws.getrandbits(64)
    return x & 2 ** int(t[1:]) - 1


def row_of(case, k):
    """Often two operands are equal, or differ in their signs only."""
    row = [input_of(case, i, k) for i in range(len(case.inputs))]
    if case.values is None and len(row) > 1 and case.inputs[0] == case.inputs[1] and case.inputs[0] != 'pred' and k % 4 == 1:
        row[1] = row[0] ^ (k % 8 == 1) << int(case.inputs[0][1:]) - 1
    return row


def run(library, number, case, turn):
    rows = [row_of(case, lane + LANES * turn) for lane in range(LANES)]
    given = (ctypes.c_uint64 * (LANES * max(len(case.inputs), 4)))(*(x for row in rows for x in row))
    got = (ctypes.c_uint64 * (LANES * len(case.outputs)))()
    place = (ctypes.c_uint64 * (LANES * 4))()
    args = struct.pack('<QQQQ', ctypes.addressof(given), ctypes.addressof(got), ctypes.addressof(place), 0x8877665544332211)
    library.emulate_kernel(ctypes.byref(Kernel.in_dll(library, f'case_{number}_kernel')), 1, 0, args, number + 1)
    wrong = []
    for lane in range(LANES):
        for i, want in enumerate(case.want(lane, rows)):
            t, x = case.outputs[i], got[lane * len(case.outputs) + i]
            if not same(x, want, t, case.ulps):
                wrong.append(f'{case.text} of {", ".join(shown(r, k) for r, k in zip(rows[lane], case.inputs))}: '
                             f'd{i} is {shown(x, t)}, not {want!r}')
    return wrong


def check_names(text):
    """Each instruction that is translated has a case, and no instruction is without a translation."""
    used = set(re.findall(r'(?<![\w.%$])[a-z][a-z0-9]*(?:\.[a-z0-9_]+)+(?=[\s;])|(?<![\w.])(?:ret|bra)(?=[ ;])', text))
    return [f'{name}: the translator knows it, and there is no case here' for name in sorted(set(ptx_to_c.INSTRUCTIONS) - used)]


def refusal(instruction):
    """What the translator says of a kernel with this in it."""
    text = (f'.version 9.0\n.target sm_80\n.address_size 64\n.visible .entry odd_one(\n\t.param .align 8 .b8 odd_one_param_0[8]\n)\n'
            f'.maxntid 32, 1, 1\n{{\n.reg .b32 %r<3>;\n{instruction}\nret;\n}}\n')
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, 'odd.ptx')
        with open(path, 'w', encoding='utf-8') as f:
            f.write(text)
        r = subprocess.run([sys.executable, os.path.join(ROOT, 'tool', 'ptx_to_c.py'), path, path + '.c'], capture_output=True, text=True,
                           check=False)
        return '' if r.returncode == 0 else r.stderr


def check_refusals():
    wrong = []
    for instruction, words in (('brev.b32 %r1, %r2;', 'odd.ptx:10: odd_one: tool/ptx_to_c.py does not know the instruction brev.b32'),
                               ('add.s32 %r1, %r2, %r7;', 'does not know the operand %r7'),
                               ('ld.param.u32 %r1, [odd_one_param_0+8];', 'does not know 4 bytes at [odd_one_param_0+8], of 8'),
                               ('bar.sync 1;', 'does not know another barrier than 0')):
        said = refusal(instruction)
        if words not in said:
            wrong.append(f'{instruction} is not refused with "{words}": {said.strip() or "it passes"}')
    return wrong


def main():
    if len(sys.argv) == 3 and sys.argv[1] == '--write':
        with open(sys.argv[2], 'w', encoding='utf-8') as f:
            f.write(ptx_text())
        return 0
    if len(sys.argv) != 2:
        raise SystemExit(__doc__.split('\n\n')[1])
    library = ctypes.CDLL(os.path.abspath(sys.argv[1]))
    wrong = check_names(ptx_text()) + check_refusals()
    for i, case in enumerate(CASES):
        wrong += [line for turn in range(N_ROUNDS) for line in run(library, i, case, turn)][:3]
    for line in wrong:
        print('FAILED: ' + line)
    print(f'{len(ptx_to_c.INSTRUCTIONS)} instructions, {len(CASES)} cases, {len(wrong)} wrong')
    return 1 if wrong else 0


if __name__ == '__main__':
    sys.exit(main())

#!/usr/bin/env python3
"""make_jinja_vectors.py - small templates and what Python's jinja2 makes of them.

    tools/make_jinja_vectors.py OUT.json                   write the vectors of tests/template/data
    tools/make_jinja_vectors.py --random N SEED OUT.json   write N random templates, with results

jinja2 (3.1) is set up as it is for chat templates: immutable sandbox, trim_blocks, lstrip_blocks,
loop controls, a generation tag, tojson without HTML escapes, raise_exception, strftime_now (fixed
at 2024-02-29 13:05:09). A test has "template" and either "text" or "error" (the name of Python's
exception) and, for raise_exception, "message".
"""
import copy
import datetime
import json
import random
import re
import sys

import jinja2
import jinja2.ext
import jinja2.nodes
from jinja2.sandbox import ImmutableSandboxedEnvironment

NOW = datetime.datetime(2024, 2, 29, 13, 5, 9)

# A line is a case here, or a rule of the grammar of random templates, however wide it becomes.
# fmt: off
VARS = {
    "i": 7, "z": 0, "neg": -3, "f": 2.5, "big": 1e20, "t": True, "no": False, "n": None,
    "s": "Hello World", "e": "", "u": "h\u00e9llo \u4e2d\u6587 \U0001f600 \u00dftra\u00dfe",
    "ws": " \t\u00a0\u3000 padded \n", "lines": "one\ntwo\r\nthree\n\nfive", "q": "it's \"quoted\" <&> \\ \u0007",
    "l": [3, 1, 2], "le": [], "ls": ["b", "A", "c", "a"], "mixed": [1, "x", None, True, 2.5, [1], {"k": "v"}],
    "nested": [[1, 2], [3, 4], [5, 6]], "d": {"b": 1, "a": 2, "C": 3}, "de": {},
    "deep": {"x": {"y": [{"z": "found"}]}, "items": "shadowed"},
    "m": [{"role": "system", "content": "S", "n": 2}, {"role": "user", "content": "U", "n": 1, "tags": ["p", "q"]},
          {"role": "assistant", "content": None, "n": 3, "tool_calls": [{"function": {"name": "f", "arguments": {"a": 1}}}]},
          {"role": "user", "content": "last", "n": 1}],
    "tree": [{"v": 1, "c": [{"v": 2, "c": []}, {"v": 3, "c": [{"v": 4, "c": []}]}]}, {"v": 5, "c": []}],
}


class Raised(jinja2.exceptions.TemplateError):
    pass


class Generation(jinja2.ext.Extension):
    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return jinja2.nodes.CallBlock(self.call_method("_body"), [], [], body).set_lineno(line)

    def _body(self, caller):
        return caller()


def environment():
    def raise_exception(message):
        raise Raised(message)

    def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators,
                          sort_keys=sort_keys)

    env = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True,
                                        extensions=[Generation, jinja2.ext.loopcontrols])
    env.filters["tojson"] = tojson
    env.globals["raise_exception"] = raise_exception
    env.globals["strftime_now"] = lambda format: NOW.strftime(format)
    return env


def render(env, template):
    out = {"template": template}
    try:
        out["text"] = env.from_string(template).render(**copy.deepcopy(VARS))
        out["text"].encode("utf-8")
    except UnicodeEncodeError:
        out = {"template": template, "error": "UnicodeEncodeError"}
    except Raised as e:
        out["error"], out["message"] = "raise_exception", str(e)
    except RecursionError:
        out["error"] = "RecursionError"
    except Exception as e:
        out["error"] = type(e).__name__
    return out


EXPRESSIONS = r"""
1 + 2 * 3 - 4 / 2
-2 ** 2
2 ** 3 ** 2
2 ** -1
(1 + 2) * 3
7 // 2, -7 // 2, 7 // -2, 7.5 // 2, -7.5 // 2
7 % 3, -7 % 3, 7 % -3, 7.5 % 2, -7.5 % 2
1 / 3, 6 / 3, 1e3, 1E-3, 0.1 + 0.2
1_000, 0x1F, 0b101, 0o17, 1_0.5_0, 1e1_0
true + true, -true, true * 3
+5, --5, -(-5)
1e16, 1e15, 123456789012345678.0, 1e-4, 1e-5, 5e-324, 1.7976931348623157e308
0.5, 100.0, 1.10, 3.14159, -0.0, 2.0 ** 70
5.858190679279809e-244, 9007199254740993.0, 2.2250738585072014e-308, 4.35, 0.1 * 3
'{:.3}|{:.1}|{:.2}|{:.3}|{:.4}'.format(607.0, 5.0, 0.001, 1e10, 12.5), '%g|%g|%.3g|%#.3g' % (1e6, 100000, 1234.5, 1)
i / z
i % z
1 // 0.0
9223372036854775807, -9223372036854775807 - 1
'a' + 'b' ~ 1 ~ none ~ 2.0 ~ true ~ [1] ~ nope
'ab' * 3, 2 * 'x', 'x' * 0, 'x' * -1
[1] * 2 + [3], (1,) + (2, 3), (1, 2) * 2
'a' + 1
1 + 'a'
[1] + (2,)
none + 1
{} + {}
nope + 1
1 < 2 < 3, 1 < 3 > 2 == 2, 1 == 1.0 == true, 'a' < 'b' <= 'b'
[1, 2] < [1, 3], [1] < [1, 0], (1, 'a') < (1, 'b'), [] < [1]
'a' < 1
none < none
[1] < (1,)
1 != 1, 'a' != 'b', none != none, nope != nope2, nope == none
nope < 1
1 in [1, 2], 4 not in [1], 'a' in 'cat', '' in 'x', 'b' in {'b': 1}, 1.0 in [1], true in [1]
1 in 'abc'
1 in none
1 in nope, 1 in range(3), 2 in range(0, 10, 3), 3 in range(0, 10, 3)
[] in {}
not 1, not '', not none, not not 1, not 1 == 2
1 and 2, 0 and 2, 1 or 2, 0 or '', none or 'd', 0 or none or false
1 if t, 1 if no, 1 if no else 2, 1 if no else 2 if no else 3
(1 if t else 2) + 1, 1 if t else 2 + 1
'x' if s is string and s else 'y'
[1, [2, (3,)], {'a': none, 1: 2.0, true: 'x'}], (), (1,), {}
'it\'s', "it's", 'say "x"', ['it\'s', "say \"x\"", 'both \' "', 'nl\n\t\r\\', '\x00\x1f\x7f\u00a0\u200b\u00e9\U0001f600']
'a' 'b' "c", 'tab\there', 'oct\101', 'unknown\qescape', 'cut\
here'
'\u00e9\x41\U0001F600', "\a\b\f\v"|length
s[0], s[-1], s[1:4], s[:5], s[6:], s[-5:], s[:-6], s[::2], s[::-1], s[8:2:-2], s[20:], s[99]
u[1], u[6:8], u[-6:], u[::-1], u|length, u[9]
l[0], l[-1], l[1:], l[::-1], l[5:], l[-2:], l[::2], l[10], l['x'], l[true]
l[1:none], l[none:none:none], l[-100:100]
l['a':]
l[::0]
n[1:]
nope[1:]
nope[0]
range(10)[2:8:3], range(10)[::-1], range(5)[1], range(5)[-1], range(3)
range(0, 10, 3)|list, range(3, 0, -1)|list, range(0)|list, range(5, 1)|list
range(1, 2, 0)
range(100001)
range('a')
range(99999999999)|length
d.nope.x
n.x.y
d.get('a'), d.get('zz'), d.get('zz', 5), d.get(1)
d.keys(), d.values(), d.items(), d.keys()|list, d.items()|list
d.keys()[0], d.keys() is sequence, d.keys() is iterable, d.items()|length
d.update({'x': 1})
d.pop('a')
l.append(1)
l.sort()
l.append is defined, l.append
l.index(9)
s.__class__, s.__class__ is defined
s.__class__.x
nope, nope is defined, nope|length, nope|list, nope|string, not nope, [nope]
nope.x
nope()
nope.x is defined
i()
u.upper(), u.title(), '\u00c9\u0130\u01c5\ufb01'.lower(), '\u01c6\ufb01\u0149'.upper(), '\u03a3\u0391\u03a3'.lower(), '\u0434\u0430'.upper()
ws.strip()|length, ws.lstrip(), ws.rstrip()|length, 'xxaxx'.strip('x'), 'abcba'.strip('ab'), 'aXbX'.rstrip('X'), 'x'.strip('')
'a,b,,c'.split(','), ' a  b '.split(), 'a b c'.split(' ', 1), 'a b c'.rsplit(' ', 1), ' a b c '.split(none, 1), ' a b c '.rsplit(none, 1), ''.split(), ''.split(',')
'a--b--c'.split('--'), 'abc'.split('abc'), 'aXbX'.split(sep='X', maxsplit=1), 'a b'.split(maxsplit=0)
'abc'.split('')
lines.splitlines(), lines.splitlines(true), 'a\x0bb\x0cc\x1cd\u2028e\x85f'.splitlines()
'abc'.startswith('ab'), 'abc'.startswith(('x', 'a')), 'abc'.endswith('c'), 'abc'.startswith('b', 1), 'abc'.endswith('b', 0, 2), 'abc'.startswith('')
'abc'.startswith(['a'])
'abc'.index('x')
'aXbX'.replace('X', '-'), 'aXbX'.replace('X', '-', 1), 'abc'.replace('', '.'), 'aaa'.replace('aa', 'b'), 'abc'.replace('z', 'y')
'-'.join(ls), ''.join('abc'), ', '.join(d), '-'.join([])
'-'.join([1])
'ab'.center(5, '**')
'{} and {}'.format(1, 'x'), '{0}{1}{0}'.format('a', 'b'), '{a}-{b}'.format(a=1, b=[2]), '{{}}'.format(), '{0.x.y}'.format(deep), '{0[a]}'.format(d)
'{:>5}|{:<5}|{:^5}|{:*^7}|{:05d}|{:+d}|{:,}|{:_}'.format('a', 'b', 'c', 'd', 42, 5, 1234567, 1234567)
'{:.2f}|{:e}|{:g}|{:.3}|{:10.3f}|{:%}|{!r}|{!s}|{:x}|{:#x}|{:b}'.format(3.14159, 12345.678, 0.0001, 'abcdef', 2.5, 0.25, 'q', 'q', 255, 255, 5)
'{:{}}|'.format('x', 5), '{:.1f}'.format(2), '{}'.format(none), '{}'.format(1.0), '{:d}'.format(true)
'{}'.format()
'{:d}'.format('x')
'{:5}'.format(none)
'%s|%r|%d|%5d|%-5d|%05d|%+d|%x|%X|%o|%e|%f|%.2f|%g|%c|%%' % ('a', 'a', 3, 4, 5, 6, 7, 255, 255, 8, 1.5, 1.5, 2.567, 0.0001, 'z')
'%s' % 'x', '%s' % 5, '%s %s' % (1, [2]), '%(a)s-%(b)05.1f' % {'a': 1, 'b': 2}, '%5s|%-5s|%.2s' % ('a', 'b', 'cde'), 'plain' % {}
'%d' % 'x'
'%s' % (1, 2)
'%s %s' % 1
'%d' % 3.9, '%i' % true, '%.3d' % 5, '%*d' % (5, 3)
s|upper, s|lower, s|capitalize, 'hello big-world (x)'|title, 5|upper, none|string|lower
'  x '|trim ~ '|', 'xxaxx'|trim('x'), n|trim, 5|trim
s|replace('o', '0'), s|replace('o', '0', 1), 5|replace(5, 6), 'aaa'|replace('a', '', 2)
s|length, l|length, d|length, u|count, ''|length, range(5)|length
i|length
n|length
(l|map('string'))|length
l|first, l|last, s|first, s|last, d|first, d|last, le|first, le|last, nope|first, range(3)|last
(l|select)|last
n|first
l|sort, l|sort(reverse=true), ls|sort, ls|sort(case_sensitive=true), m|sort(attribute='n')|map(attribute='content')|list
m|sort(attribute='n,content', reverse=true)|map(attribute='n')|list
['b', 1]|sort
[none, none]|sort, [[2], [1]]|sort, [(1, 'b'), (1, 'a')]|sort, [true, 0, 2]|sort, le|sort
m|sort(attribute='content')
d|dictsort, d|dictsort(true), d|dictsort(false, 'value'), d|dictsort(reverse=true), d|dictsort(by='value', reverse=true)
d|dictsort(by='x')
l|dictsort
l|unique|list, [1, 1.0, true, 2]|unique|list, ls|unique|list, ['a', 'A', 'b']|unique|list, ['a', 'A']|unique(true)|list, m|unique(attribute='role')|map(attribute='n')|list
[[1], [1]]|unique|list
l|min, l|max, ls|min, ls|max, ls|max(true), m|min(attribute='n'), le|min, le|max is defined, m|max(attribute='n')
['a', 1]|min
l|sum, [0.5, 1]|sum, le|sum, m|sum(attribute='n'), l|sum(start=10), [[1], [2]]|sum(start=[])
ls|sum
l|join, l|join(', '), m|join('|', attribute='role'), 'abc'|join('-'), d|join(','), l|join(0), le|join('x'), nope|join
i|join
l|list, s|list, d|list, (1, 2)|list, nope|list, range(3)|list
n|list
l|reverse|list, s|reverse, d|reverse|list, (l|map('string')|reverse)|join, range(3)|reverse|list
i|reverse
d|items|list, nope|items|list, de|items|list
l|items|list
l|map('string')|list, ls|map('upper')|join, m|map(attribute='role')|list, m|map(attribute='tags.0')|list|length, m|map(attribute='tags', default='-')|list, m|map(attribute='tool_calls.0.function.name', default='-')|list
m|map(attribute='nope.x')|list
l|map('nosuch')|list
le|map('nosuch')|list, n|map('x')|list, nope|map(attribute='x')|list
l|map|list
['1', 'x']|map('int', default=9)|list, [1.234, 5.678]|map('round', 1)|list, ['a']|map('replace', 'a', 'b')|list
[0, 1, '', 'a', none]|select|list, [0, 1, '', 'a', none]|reject|list, l|select('odd')|list, l|reject('odd')|list, l|select('>', 1)|list, l|select('in', [1, 2])|list, l|select('divisibleby', 2)|list
m|selectattr('role', 'equalto', 'user')|map(attribute='content')|list, m|rejectattr('role', 'eq', 'user')|list|length, m|selectattr('content')|list|length, m|rejectattr('content')|list|length, m|selectattr('tags', 'defined')|list|length, m|selectattr('n', 'gt', 1)|list|length, m|selectattr('content', 'none')|list|length
l|select('nosuch')|list
n|select('odd')|list, nope|selectattr('x')|list
(l|select('odd')) is sequence, (l|select('odd')) is iterable, 'yes' if le|select else 'no'
l|batch(2)|list, l|batch(2, 'x')|list, l|slice(2)|list, l|slice(2, 'x')|list, range(7)|slice(3)|list, le|batch(2)|list
m|groupby('role')|map('first')|list, m|groupby('n')|map(attribute='grouper')|list, (m|groupby('n'))[0].list|length, ls|groupby('length')|list
['b', 'a', 'B']|map('lower')|groupby(0)|list, m|groupby('tags', default='none')
m|groupby('tags')|list|length
l|tojson, d|tojson, mixed|tojson, q|tojson, u|tojson, none|tojson, 1.0|tojson, 1e20|tojson, []|tojson, (1, 2)|tojson, {1: 2, none: 3, true: 4, 1.5: 5}|tojson
mixed|tojson(indent=2), d|tojson(indent=0), d|tojson(indent='--'), {'a': {}, 'b': []}|tojson(indent=4)
d|tojson(separators=(',', ':')), d|tojson(sort_keys=true), u|tojson(ensure_ascii=true), '\x7f\x01</script>'|tojson, '\x7f'|tojson(ensure_ascii=true), d|tojson(true, 1)
nope|tojson
[nope]|tojson
(l|map('string'))|tojson
{(1, 2): 3}|tojson
range(3)|tojson
3.7|int, '12'|int, ' 12 '|int, 'x'|int, 'x'|int(5), '3.9'|int, 'ff'|int(base=16), '0x1F'|int(0, 16), '1_000'|int, none|int, [1]|int(-1), true|int, '-7'|int, ''|int, 'inf'|int, '0b11'|int(base=2), '010'|int
nope|int
(1e300 * 1e300)|int
'1.5'|float, 'x'|float, 'x'|float(2), 3|float, '1e3'|float, ' 2 '|float, 'nan'|float, 'inf'|float, '-inf'|float, none|float, '1_0.5'|float, '0x10'|float, true|float
nope|float
-5|abs, 5.5|abs, true|abs, (0 - 2.5)|abs
'x'|abs
2.5|round, 3.5|round, 2.675|round(2), -2.5|round, 1234|round(-2), 1250|round(-2), 1350|round(-2), 2|round, 2.1|round(0, 'ceil'), 2.9|round(0, 'floor'), 2.55|round(1), 42.55|round(1, 'floor'), 5|round(1, 'ceil'), 1e20|round, -1.5|round(0, 'ceil')
'x'|round
2|round(method='x')
'%s'|format('a', x=1)
'a\nb\n\nc'|indent, 'a\nb'|indent(2, true), 'a\n\nb'|indent(1, blank=true), 'a\nb'|indent('> '), ''|indent, 'a\n'|indent(2), lines|indent(1)
n|indent
s|truncate(2, leeway=0)
nope|default('x'), n|default('x'), n|default('x', true), ''|d('e', true), 0|default(1, true), nope|default, d.zz|default('q'), nope|d(boolean=true)
nope.x|default('y')
'<a href="x">\'&'|e, '<b>'|safe, '<b>'|safe + '<i>', '<i>' + '<b>'|safe, '<b>'|safe ~ '<i>', ('<b>'|safe)|e, '<b>'|e|e, 5|e, ('%s <'|safe) % '<x>', ('<'|safe).join(['>', 'a']), ('<b>'|safe).upper() + '<', ['<'|safe], ('a<'|safe)|replace('a', '<'), ('<b>'|safe).replace('b', '<')
4 is even, 3 is odd, 3.0 is odd, 6 is divisibleby 3, 6 is divisibleby(4), 2 is even and 3 is odd
'x' is odd
1 is number, true is number, 1.5 is number, '1' is number, 1 is integer, true is integer, 1.0 is integer, 1.0 is float, 1 is float
s is string, l is string, d is mapping, l is mapping, l is sequence, s is sequence, d is sequence, i is sequence, l is iterable, i is iterable, nope is iterable, nope is sequence, range(2) is sequence, n is iterable
none is none, n is none, nope is none, 0 is none, t is true, 1 is true, no is false, 0 is false, t is boolean, 1 is boolean
'ab' is lower, 'AB' is upper, 'Ab' is lower, 5 is lower, n is upper
1 is eq 1, 1 is equalto 2, 1 is ne 2, 2 is gt 1, 2 is ge 2, 1 is lt 2, 1 is le 1, 1 is lessthan 2, 2 is greaterthan 1, 1 is sameas 1, none is sameas none, true is sameas 1
2 is in [1, 2], 2 is not in [1], 'a' is in 'abc', 1 is in([1])
not 1 is none, 1 is not none, not nope is defined, nope is not defined
1 is string is none
1 is nosuch
1|nosuch
1 if t else 1|nosuch
[1, 2,], {'a': 1,}, (1, 2,), [1
{'a': 1, 'a': 2, 'b': 3}, {1: 'a', 1.0: 'b', true: 'c'}, {'x': {'y': 1}}.x.y
{[1]: 2}
dict(a=1, b=2), dict({'x': 1}, y=2), dict([('p', 1)]), dict()
namespace(a=1).a, namespace({'b': 2}).b, namespace(a=1), namespace().x is defined
dict(*[{'a': 1}], **{'b': 2}), dict(**d)
'{}-{}'.format(*l[:2]), '{a}'.format(**d)
s.upper(1)
s.replace('a')
s.strip(chars='x')
d.get()
cycler()
raise_exception('custom: ' ~ i)
raise_exception('with "quotes" & <tags> \u00e9')
raise_exception()
strftime_now('%Y-%m-%d %H:%M:%S'), strftime_now('%d %b %Y'), strftime_now('%A %B %-d, %y'), strftime_now('%I:%M %p'), strftime_now('%j %U %W %V %G %u %w'), strftime_now('%e|%-m|%_d|%k|%l|%D|%F|%T|%R|%%|%C'), strftime_now('%^a %#b'), strftime_now('plain'), strftime_now('%c|%x|%X')
strftime_now(5)
big
5 .x, 1.0.x, 3|string|length
loop
(1, 2)[0], ((1, 2), 3)[0][1], [[1]][0][0], {'a': [1, {'b': 2}]}['a'][1]['b']
'abc'|reverse|list, 'abc'[::-1]|upper|list|join('.')
l|map('abs')|sum, (ls|sort|first|upper) ~ '!', d|items|map('first')|join(','), d.items()|map('last')|sum
d.items()|sort, d.keys()|sort|join, d|length > 2 and d.a == 2
m[0].role == 'system' and m[1:]|length == 3, m|selectattr('role', 'in', ['user', 'system'])|list|length, m[-1].content, m[-1]['content'][0]
m[2].tool_calls[0].function.arguments|tojson, m[2].tool_calls[0]['function'].name
1if t else 2, 1 if(t)else 2
not(1), -1|abs, (-1)|abs, -1.5|abs, 2 * -1
1 ~ 2 + 3, 1 + 2 ~ 3, 'a' ~ 1 * 2
t and no or 'x', not t or 'y', 1 or 1 / 0
"a\"b", 'a\\b', 'a\\\'b', "\\n", '\\\\'
1,
"""

SNIPPETS = [
    # white space
    "a\n{% if t %}\nb\n{% endif %}\nc\n", "a\n  {% if t %}\n  b\n  {% endif %}\nc", "  {% set x = 1 %}  y", "x {% if t %} y {% endif %} z",
    "a {%- if t -%} b {%- endif -%} c", "a\n\n{%- if t %}\n\nb{% endif -%}\n\n c", "a  {{- 1 -}}  b", "a\n{{ 1 }}\nb\n", "{{ 1 }}\n", "\n\na\n\n",
    "a\n   {%+ if t %}b{% endif +%}\nc", "a {#- c -#} b", "a\n  {# c #}\nb", "a\n  {#+ c +#}\nb", "a{# {{ x }} {% if %} #}b", "{#- x -#}\n a", "{##}x{#-#}y",
    "a\r\nb\rc\r\n{% if t %}\r\nd{% endif %}", "{% raw %}{{ x }}{% endraw %}", "a\n  {% raw %}\n b {% endraw %}\nc", "a {%- raw -%} {{ b }} {%- endraw -%} c",
    "{% raw -%}\n  x\n{%- endraw %}\ny", "{% raw %}{% if %}{# #}{% endraw %}", "\t{% if t %}x{% endif %}", "x\n\t {% if t %}\ny\n \t{% endif %}z",
    "a\u00a0\n{%- if t %}b{% endif %}", "\u3000{% if t %}b{% endif %}", "{{-1}}{{+1}}{{ -1 }}", "{{ '}}' }}{{ '%}' }}", "{{ {'a': {'b': 1}} }}", "{{ {'a':{}}}}", "{ { x } } {x} {%", "{{ 1 }} }} %} #}",
    "{%if t%}x{%endif%}", "{%-if t-%} x {%-endif-%}", "{%  set\n x\n =\n 1\n %}{{\nx\n}}", "a{% if t %}\n\n\nb{% endif %}\n\n\nc", "{% if t %} {% endif %}|", "{{ '\n' }}|{{ 'a\nb' }}",
    "line1\n{% for x in l %}\n  - {{ x }}\n{% endfor %}\nend\n", "{% for x in l -%}\n  {{ x }}\n{%- endfor %}", "a\n{% set x = 1 -%}\n  b", "a\n  {%- set x = 1 %}\n  b",
    # statements
    "{% if n %}a{% elif no %}b{% elif t %}c{% else %}d{% endif %}", "{% if n %}a{% else %}b{% endif %}", "{% if 1, %}x{% endif %}", "{% if not nope %}x{% endif %}",
    "{% for x in l %}{{ loop.index }}/{{ loop.length }}:{{ x }}{{ ',' if not loop.last }}{% endfor %}",
    "{% for x in l %}{{ loop.index0 }}{{ loop.revindex }}{{ loop.revindex0 }}{{ loop.first }}{{ loop.depth }}{{ loop.depth0 }} {% endfor %}",
    "{% for x in l %}{{ loop.previtem|default('-') }}{{ x }}{{ loop.nextitem|default('-') }} {% endfor %}",
    "{% for x in range(5) %}{{ loop.cycle('a', 'b', 'c') }}{% endfor %}", "{% for x in l %}{{ loop.cycle() }}{% endfor %}",
    "{% for x in le %}x{% else %}empty{% endfor %}", "{% for x in l %}x{% else %}empty{% endfor %}", "{% for x in nope %}x{% else %}none{% endfor %}", "{% for x in n %}{% endfor %}", "{% for x in 5 %}{% endfor %}",
    "{% for x in l if x > 1 %}{{ loop.index }}{{ x }}{{ loop.last }} {% else %}none{% endfor %}", "{% for x in l if x > 9 %}x{% else %}none{% endfor %}", "{% for x in l if x > 1 %}{{ loop.length }}{% endfor %}",
    "{% set ns = namespace(stop=false) %}{% for x in l if not ns.stop %}{{ x }}{% set ns.stop = x == 1 %}{% endfor %}",
    "{% for k, v in d.items() %}{{ k }}={{ v }};{% endfor %}", "{% for k, v in d|dictsort %}{{ k }}{{ v }}{% endfor %}", "{% for k in d %}{{ k }}{% endfor %}", "{% for a, b in nested %}{{ a }}{{ b }}{% endfor %}",
    "{% for (a, b), c in [((1, 2), 3)] %}{{ a }}{{ b }}{{ c }}{% endfor %}", "{% for a, b in [[1]] %}{% endfor %}", "{% for a, b in [[1, 2, 3]] %}{% endfor %}", "{% for a, b in ['xy'] %}{{ a }}{{ b }}{% endfor %}", "{% for a, b in [[1, 2]] if a %}{{ loop.previtem }}{{ a }}{% endfor %}",
    "{% for c in u %}{{ c }}|{% endfor %}", "{% for x in (1, 2) %}{{ x }}{% endfor %}", "{% for x in 1, 2, 3 %}{{ x }}{% endfor %}", "{% for x in l|sort %}{{ x }}{% endfor %}", "{% for x in range(3) %}{{ x }}{% endfor %}",
    "{% for x in tree recursive %}{{ x.v }}[{{ loop(x.c) }}]{{ loop.depth }}{% endfor %}", "{% for x in tree recursive %}{{ x.v }}{% if x.c %}({{ loop(x.c) }}){% else %}.{% endif %}{% else %}E{% endfor %}", "{% for x in l %}{{ loop(l) }}{% endfor %}",
    "{% for x in l %}{% if x == 1 %}{% continue %}{% endif %}{{ x }}{% endfor %}", "{% for x in l %}{{ x }}{% if x == 1 %}{% break %}{% endif %}{% endfor %}", "{% for x in l %}{% continue %}{% else %}else{% endfor %}", "{% for x in l %}{% break %}{% else %}else{% endfor %}",
    "{% for x in l %}{% for y in l %}{% if y == 1 %}{% break %}{% endif %}{{ x }}{{ y }} {% endfor %}{% endfor %}", "{% for x in l %}{% set a %}q{% if x == 1 %}{% continue %}{% endif %}{% endset %}{{ a }}{{ x }}{% endfor %}", "{% break %}", "{% macro f() %}{% break %}{% endmacro %}",
    "{% for x in l %}{% for y in l %}{{ loop.index }}{% endfor %}{{ loop.index }} {% endfor %}", "{% for x in l %}{% set outer = loop %}{% for y in [1] %}{{ outer.index }}{% endfor %}{% endfor %}", "{% for loop in l %}{% endfor %}", "{% for x in l %}{% set loop = 1 %}{% endfor %}",
    "{% for x in l %}{{ loop }}{% endfor %}", "{% for x in l %}{{ loop|length }}{% endfor %}", "{% for x in l|map('string') %}{{ loop.last }}{{ loop.length }}{% endfor %}", "{% for x in l|map('string') %}{{ loop.index }}{{ loop.nextitem|d }}{% endfor %}",
    # scopes
    "{% set x = 1 %}{% for i in l %}{% set x = x + 1 %}{{ x }}{% endfor %}{{ x }}", "{% if t %}{% set y = 5 %}{% endif %}{{ y }}", "{% for i in l %}{% set y = 1 %}{% endfor %}{{ y }}|", "{% for s in l %}{{ s }}{% endfor %}{{ s }}", "{% for x in l %}{% endfor %}{{ x }}|",
    "{% set ns = namespace(c=0) %}{% for i in l %}{% set ns.c = ns.c + i %}{% endfor %}{{ ns.c }}", "{% set d.x = 1 %}", "{% set nope.x = 1 %}", "{% set ns = namespace() %}{% set ns.a, ns.b = 1, 2 %}{{ ns.a }}{{ ns.b }}", "{% set ns = namespace(a=1) %}{% set ns2 = ns %}{% set ns2.a = 2 %}{{ ns.a }}{{ ns }}",
    "{% set s %}[{{ s }}]{% endset %}{{ s }}", "{{ s }}{% set s %}[{{ s }}]{% endset %}{{ s }}", "{% set x = s %}{% set s = 'new' %}{{ x }}{{ s }}", "{% for a in [1, 2] %}{{ v }}{% set v = a %}{{ v }}{% endfor %}{{ v }}", "{% for a in [1] %}{{ s }}{% set s = 'in' %}{{ s }}{% endfor %}{{ s }}",
    "{% for a in [1, 2] %}{% if a == 1 %}{% set k = 'one' %}{% endif %}{{ k }}|{% endfor %}", "{% if no %}{% set s = 'x' %}{% endif %}{{ s }}", "{% if no %}{% set w = 'x' %}{% else %}{% set w = 'y' %}{% endif %}{{ w }}", "{% set a, b = 1, 2 %}{{ a }}{{ b }}{% set a, b = b, a %}{{ a }}{{ b }}", "{% set a, b = [1] %}", "{% set (a, b) = 'xy' %}{{ a }}{{ b }}",
    "{% set x | upper | trim %} abc {% endset %}[{{ x }}]", "{% set x %}{% for i in l %}{{ i }}{% endfor %}{% endset %}{{ x|length }}", "{% set x %}a{% set y = 1 %}{% endset %}{{ y }}|{{ x }}", "{% set x = 1, 2 %}{{ x }}", "{% set true = 1 %}", "{% set x.y.z = 1 %}", "{% set 'a' = 1 %}", "{% set _x = 1 %}{{ _x }}",
    # macros
    "{% macro f(a, b='d') %}{{ a }}-{{ b }};{% endmacro %}{{ f(1) }}{{ f(1, 2) }}{{ f(b=3, a=4) }}{{ f() }}", "{% macro f(a, b=a) %}{{ a }}{{ b }}{% endmacro %}{{ f(1) }}", "{% macro f(a) %}{{ a }}{% endmacro %}{{ f(1, 2) }}", "{% macro f(a) %}{{ a }}{% endmacro %}{{ f(x=2) }}", "{% macro f(a) %}{{ a.x }}{% endmacro %}{{ f() }}",
    "{% macro f() %}{{ varargs }}{{ kwargs }}{% endmacro %}{{ f(1, 2, x=3) }}{{ f() }}", "{% macro f(a) %}{{ a }}{{ varargs|length }}{% endmacro %}{{ f(1, 2, 3) }}", "{% macro f(n) %}{{ n }}{% if n > 0 %}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(3) }}", "{{ f(1) }}{% macro f(a) %}{% endmacro %}",
    "{% set x = 1 %}{% macro f() %}{{ x }}{% endmacro %}{% set x = 2 %}{{ f() }}", "{% macro f() %}{% set s = 'in' %}{{ s }}{% endmacro %}{{ f() }}{{ s }}", "{% macro f() %}{{ g() }}{% endmacro %}{% macro g() %}G{% endmacro %}{{ f() }}", "{% for x in l %}{% macro f() %}{{ x }}{% endmacro %}{{ f() }}{% endfor %}", "{% for x in l %}{{ f(x) }}{% endfor %}{% macro f(x) %}{% endmacro %}",
    "{% macro w(k) %}<{{ k }}>{{ caller() }}</{{ k }}>{% endmacro %}{% call w('b') %}in {{ s }}{% endcall %}", "{% macro w() %}{{ caller(1, y=2) }}{% endmacro %}{% call(x, y) w() %}{{ x }}{{ y }}{% endcall %}", "{% macro w() %}x{% endmacro %}{% call w() %}y{% endcall %}", "{% macro w() %}{{ caller() }}{% endmacro %}{{ w() }}", "{% macro w() %}{{ caller is defined }}{% endmacro %}{{ w() }}{% call w() %}{% endcall %}", "{% call s.upper() %}{% endcall %}",
    "{% macro f(caller=none) %}{{ caller is none }}{% endmacro %}{{ f() }}{% call f() %}x{% endcall %}", "{% macro f(x) -%}\n  {{ x }}\n{%- endmacro %}[{{ f(1) }}]", "{% macro f() %}a{% endmacro %}{{ f()|upper }}{{ f }}{{ f.name }}", "{% macro f(a=1, b) %}{% endmacro %}", "{% macro f(a, a) %}{% endmacro %}", "{% macro f() %}{% macro g() %}{{ s }}{% endmacro %}{{ g() }}{% endmacro %}{{ f() }}",
    "{% macro a(x) %}{% for i in x %}{{ b(i) }}{% endfor %}{% endmacro %}{% macro b(y) %}[{% if y is iterable and y is not string %}{{ a(y) }}{% else %}{{ y }}{% endif %}]{% endmacro %}{{ a(nested) }}", "{% macro f() %}{% for x in l %}{% if x == 1 %}{% break %}{% endif %}{{ x }}{% endfor %}{% endmacro %}{{ f() }}",
    # blocks
    # unknown filters and other errors
    "{% if no %}{{ 1|nosuch }}{% endif %}ok", "{% if no %}{% for x in l %}{{ 1|nosuch }}{% endfor %}{% endif %}", "{% if t %}{{ 1|nosuch }}{% endif %}", "{{ 1|nosuch if no else 'ok' }}", "{% if no %}{{ 1 is nosuch }}{% endif %}ok", "{% if no %}{% set x = 1|nosuch %}{% endif %}ok", "{% macro f() %}{{ 1|nosuch }}{% endmacro %}",
    "{% if t %}a", "{% endif %}", "{% for x %}{% endfor %}", "{% for x in l %}{% endif %}", "{{ 1 + }}", "{{ }}", "{{ 1 2 }}", "{{ (1 }}", "{{ 1) }}", "{{ [1) }}", "{{ 'a }}", "{{ 'a' + }}", "{% %}", "{% 1 %}", "{% nosuch %}", "{% do 1 %}", "{{ a..b }}", "{{ a.'b' }}", "{{ 1 ! 2 }}", "{{ a b }}", "{{ not }}", "{{ f(a=1, 2) }}", "{{ f(a=1, a=2) }}", "{{ '\\x4' }}", "{# open", "{% raw %}x", "{{ x", "{% if x", "{{ {1} }}", "{{ {1: } }}", "{{ x[1, 2] }}", "{{ d[1, 2] }}", "{% set x %}", "{% else %}", "{{ 007 }}", "{{ @ }}", "{{ x if }}", "{{ is }}", "{% include 'x' %}", "{% extends 'x' %}", "{% import 'x' as y %}", "{{ 5|}}", "{{ 5| }}", "{{ 5 is }}", "{{ l[] }}", "{{ l[:::] }}",
    "{% for x in l %}{{ x }}{% endfor x %}", "{% if t: %}x{% endif %}", "{% for x in l: %}{{ x }}{% endfor %}", "{{ [x for x in l] }}", "{{ lambda }}", "{{ s.upper }}"[:0] + "{{ s.upper is defined }}",
    # conversations
    "{% for message in m %}{{ '<|' + message.role + '|>' }}{{ message.content or '' }}{% if message.tool_calls is defined and message.tool_calls %}{% for c in message.tool_calls %}{{ c.function|tojson }}{% endfor %}{% endif %}\n{% endfor %}",
    "{%- if m[0]['role'] == 'system' %}\n    {%- set system = m[0]['content'] %}\n    {%- set loop_messages = m[1:] %}\n{%- else %}\n    {%- set loop_messages = m %}\n{%- endif %}\n{%- for x in loop_messages %}\n    {{- x.role + ': ' + (x.content or 'nothing') + '\\n' }}\n{%- endfor %}\n{{- system }}",
    "{% for x in m %}{% if (x.role == 'user') != (loop.index0 % 2 == 1) %}{{ raise_exception('roles must alternate') }}{% endif %}{% endfor %}", "{% set ns = namespace(last=-1) %}{% for x in m %}{% if x.role == 'user' %}{% set ns.last = loop.index0 %}{% endif %}{% endfor %}{{ ns.last }}", "{%- macro show(v) -%}{%- if v is mapping -%}{ {%- for k, x in v|items -%}{{ k }}: {{ show(x) }}{{ ', ' if not loop.last }}{%- endfor -%} }{%- elif v is string -%}{{ v|tojson }}{%- elif v is iterable -%}[{%- for x in v -%}{{ show(x) }}{{ ', ' if not loop.last }}{%- endfor -%}]{%- else -%}{{ v }}{%- endif -%}{%- endmacro -%}{{ show(m) }}",
    "{% filter upper %}abc {{ s }}{% endfilter %}",
    "{% filter replace('a', 'b')|upper %}banana{% endfilter %}",
    "{% filter trim %}  x  {% endfilter %}|",
    "{% filter nosuch %}x{% endfilter %}",
    "a{% generation %}b{{ i }}{% endgeneration %}c",
    "{% generation %}{% set g = 1 %}{% endgeneration %}{{ g }}|",
    "{% for x in l %}{% generation %}{{ x }}{{ loop.index }}{% endgeneration %}{% endfor %}",
    "{% set j = joiner(', ') %}{% for x in l %}{{ j() }}{{ x }}{% endfor %}",
]


# ---- random templates ----

class Maker:
    ATOMS = ["i", "z", "neg", "f", "t", "no", "n", "s", "e", "u", "l", "le", "ls", "mixed", "nested", "d", "m", "deep", "nope", "q", "lines", "ws",
             "0", "1", "2", "3", "-1", "10", "1.5", "0.0", "'a'", "'b'", "''", "'x y'", "'%s'", "'{}'", "true", "false", "none", "[]", "{}", "()", "'\u00e9\u4e2d'", "'<b>'"]
    BINARY = ["+", "-", "*", "/", "//", "%", "~", "==", "!=", "<", "<=", ">", ">=", "in", "not in", "and", "or", "+", "~", "=="]
    FILTERS = ["abs", "batch(2)", "capitalize", "center(9)", "count", "default('D')", "default('D', true)", "dictsort", "e", "first", "float", "float(1.5)",
               "groupby('n')", "groupby(0)", "indent", "indent(2, true)", "int", "int(3)", "items", "join", "join(',')", "join('-', attribute='n')", "last", "length", "list", "lower",
               "map('string')", "map('upper')", "map(attribute='role')", "map(attribute='n', default=0)", "map('first')", "max", "min", "min(attribute='n')", "reject", "reject('odd')", "reject('none')", "rejectattr('n')",
               "replace('a', 'b')", "replace('o', '')", "reverse", "round", "round(1)", "round(0, 'ceil')", "safe", "select", "select('string')", "select('defined')", "selectattr('n')", "selectattr('role', 'eq', 'user')", "slice(2)",
               "sort", "sort(reverse=true)", "sort(attribute='n')", "string", "sum", "sum(attribute='n')", "sum(start=1)", "title", "tojson", "tojson(indent=2)", "tojson(sort_keys=true)", "tojson(ensure_ascii=true)", "trim", "trim('a')", "truncate(8)",
               "truncate(4, true, '.', 0)", "unique", "upper", "urlencode", "wordcount", "d", "list|length", "list|first", "map('int')|list", "format(1)", "attr('items')|string|length", "e|e", "list|tojson"]
    TESTS = ["boolean", "callable", "defined", "divisibleby 2", "eq 1", "escaped", "even", "false", "float", "ge 1", "gt 1", "in [1, 'a']", "in 'abc'", "integer", "iterable", "le 1", "lower", "lt 2", "mapping",
             "ne 1", "none", "number", "odd", "sequence", "string", "true", "undefined", "upper", "sameas none", "in l", "eq s"]
    METHODS = ["upper()", "lower()", "strip()", "split()", "split('a')", "split(' ', 1)", "rsplit('l', 1)", "title()", "capitalize()", "swapcase()", "startswith('H')", "endswith(('d', 'o'))", "replace('l', 'L', 1)",
               "find('o')", "rfind('o')", "count('l')", "join(ls)", "isdigit()", "isalpha()", "islower()", "isupper()", "isspace()", "isalnum()", "splitlines()", "partition(' ')", "rpartition('o')", "zfill(8)", "center(14, '.')",
               "ljust(5)", "rjust(13)", "lstrip('h')", "rstrip('d')", "removeprefix('He')", "removesuffix('ld')", "format(1, 2)", "get('a')", "get('zz', 4)", "items()", "keys()", "values()", "index(1)", "count(1)", "copy()", "append(1)", "pop()"]
    ATTRS = ["a", "role", "x", "n", "content", "items", "nope", "upper", "get"]

    def __init__(self, seed):
        self.r = random.Random(seed)

    def expr(self, depth=0):
        r = self.r
        if depth > 3 or r.random() < 0.18:
            return r.choice(self.ATOMS)
        sub = lambda: self.expr(depth + 1)
        kind = r.randrange(16)
        if kind < 3: return f"{sub()} {r.choice(self.BINARY)} {sub()}"
        if kind < 4: return f"({sub()} {r.choice(self.BINARY)} {sub()})"
        if kind < 7: return f"{self.operand(depth)}|{r.choice(self.FILTERS)}"
        if kind < 8: return f"{self.operand(depth)} is {'not ' if r.random() < .3 else ''}{r.choice(self.TESTS)}"
        if kind < 10: return f"{self.operand(depth)}.{r.choice(self.METHODS)}"
        if kind < 11: return f"{self.operand(depth)}.{r.choice(self.ATTRS)}"
        if kind < 12:
            part = lambda: r.choice(["", "", "0", "1", "2", "-1", "-2", "10", "none"])
            return f"{self.operand(depth)}[{r.choice(['0', '1', '-1', sub(), part() + ':' + part(), part() + ':' + part() + ':' + r.choice(['', '1', '2', '-1', '-2'])])}]"
        if kind < 13: return f"({sub()} if {sub()}" + (f" else {sub()})" if r.random() < .8 else ")")
        if kind < 14: return "[" + ", ".join(sub() for _ in range(r.randrange(4))) + "]"
        if kind < 15: return "{" + ", ".join(f"{r.choice(['1', chr(39) + 'k' + chr(39), 's', 'i', 'true', '1.0'])}: {sub()}" for _ in range(r.randrange(3))) + "}"
        return r.choice(["not ", "-", "+", "not not "]) + self.operand(depth)

    def operand(self, depth):
        e = self.expr(depth + 1)
        return e if re.fullmatch(r"\w+|'[^']*'|\(.*\)|\[.*\]", e) and self.r.random() < .9 else f"({e})"

    def target(self):
        return self.r.choice(["x", "y", "v", "s", "i", "x, y", "k, v", "ns.a", "l"])

    def body(self, depth):
        return "".join(self.stmt(depth + 1) for _ in range(self.r.randrange(1, 4)))

    def tag(self, text):
        r = self.r
        return "{%" + r.choice(["", "", "", "-", "+"]) + " " + text + " " + r.choice(["", "", "", "-", "+"]) + "%}"

    def stmt(self, depth=0):
        r = self.r
        if depth > 3 or r.random() < .35:
            return r.choice(["{{ %s }}" % self.expr(1), "{{- %s -}}" % self.expr(1), "{{ x }}", "{{ y }}{{ v }}", "{{ s }}", " ", "\n", "text\n", "  ", "a {# c #}\n", "{{ ns.a }}", "{{ loop.index }}", "{{ mac(%s) }}" % self.expr(2), "{{ k }}|"])
        kind = r.randrange(13)
        if kind < 3: return self.tag("if " + self.expr(1)) + self.body(depth) + (self.tag("elif " + self.expr(1)) + self.body(depth) if r.random() < .3 else "") + (self.tag("else") + self.body(depth) if r.random() < .5 else "") + self.tag("endif")
        if kind < 6: return self.tag(f"for {self.target()} in {self.expr(2)}" + (f" if {self.expr(2)}" if r.random() < .25 else "") + (" recursive" if r.random() < .1 else "")) + self.body(depth) + (self.tag("else") + self.body(depth) if r.random() < .25 else "") + self.tag("endfor")
        if kind < 9: return self.tag(f"set {self.target()} = {self.expr(1)}" + (f", {self.expr(2)}" if r.random() < .2 else ""))
        if kind < 10: return self.tag("set " + r.choice(["x", "y", "s"]) + r.choice(["", "", " | upper", " | trim"])) + self.body(depth) + self.tag("endset")
        if kind < 11: return self.tag(f"macro mac({r.choice(['', 'x', 'x, y=1', 'v=s, k=v', 'x, y=x'])})") + self.body(depth) + r.choice(["", "{{ varargs }}", "{{ kwargs }}", "{{ caller() }}", "{{ caller is defined }}"]) + self.tag("endmacro")
        if kind < 12: return r.choice([self.tag("with x = %s" % self.expr(2)) + self.body(depth) + self.tag("endwith"), self.tag("filter " + r.choice(["upper", "trim", "replace('a', 'b')|lower"])) + self.body(depth) + self.tag("endfilter"), self.tag("generation") + self.body(depth) + self.tag("endgeneration"), self.tag(r.choice(["call mac()", "call mac(1)", "call(x) mac(2, 3)"])) + self.body(depth) + self.tag("endcall")])
        return r.choice([self.tag("break"), self.tag("continue"), self.tag("set ns = namespace(a=%s)" % self.expr(2)), self.tag("raw") + "{{ raw }}" + self.tag("endraw")])

    # expressions of one type, which seldom fail

    def grouped(self, e):
        return e if re.fullmatch(r"\w+|'[^']*'", e) else f"({e})"

    def num(self, d=0):
        return self.grouped(self.num_text(d))

    def num_text(self, d):
        r = self.r
        if d > 3 or r.random() < .2: return r.choice(["i", "z", "neg", "f", "1", "2", "-3", "2.5", "10", "loop.index if loop is defined else 0", "ns.a if ns is defined and ns.a is number else 4"])
        return r.choice([lambda: f"({self.num(d + 1)} {r.choice('+-*')} {self.num(d + 1)})", lambda: f"({self.num(d + 1)} {r.choice(['/', '//', '%'])} {r.choice(['2', '3', '-2', '1.5'])})", lambda: f"{self.string(d + 1)}|length", lambda: f"{self.lst(d + 1)}|length",
                         lambda: f"{self.num(d + 1)}|{r.choice(['abs', 'int', 'float', 'round', 'round(1)', 'string|int', 'string|float'])}", lambda: f"{self.string(d + 1)}.{r.choice(['find', 'count', 'rfind'])}({self.string(d + 2)})", lambda: f"({self.num(d + 1)} if {self.boolean(d + 1)} else {self.num(d + 1)})",
                         lambda: f"{r.choice(['l', '[1, 5, 2]', 'range(4)'])}|{r.choice(['sum', 'min', 'max', 'first', 'last'])}", lambda: f"({self.num(d + 1)}) ** {r.choice(['0', '1', '2'])}", lambda: f"{self.string(d + 1)}|wordcount"])()

    def string(self, d=0):
        return self.grouped(self.string_text(d))

    def string_text(self, d):
        r = self.r
        if d > 3 or r.random() < .2: return r.choice(["s", "e", "u", "q", "lines", "ws", "'a'", "'Hello'", "\"it's\"", "'a,b,c'", "'\\u00e9x'", "m[0].role", "m[-1]['content']", "deep.x.y[0].z", "'<b>&'"])
        return r.choice([lambda: f"({self.string(d + 1)} {r.choice('+~')} {self.string(d + 1)})", lambda: f"({self.string(d + 1)} ~ {self.any(d + 1)})", lambda: f"{self.string(d + 1)}|{r.choice(['upper', 'lower', 'title', 'capitalize', 'trim', 'reverse', 'e', 'safe', 'string', 'indent(2)', 'truncate(6, true)', 'center(15)', 'urlencode', 'tojson', 'tojson(ensure_ascii=true)', 'list|join', 'default(1)'])}",
                         lambda: f"{self.string(d + 1)}.{r.choice(['upper()', 'lower()', 'strip()', 'lstrip()', 'rstrip()', 'title()', 'capitalize()', 'swapcase()', 'zfill(9)', 'center(11)', 'strip(chr)' if 0 else 'strip(s)', 'expandtabs()'])}", lambda: f"{self.string(d + 1)}.replace({self.string(d + 2)}, {self.string(d + 2)})", lambda: f"{self.string(d + 1)}[{r.choice(['', '1', '-3', '2'])}:{r.choice(['', '5', '-1', '8'])}{r.choice(['', ':2', ':-1', ':'])}]",
                         lambda: f"{self.string(d + 2)}.join({self.lst(d + 1)}|map('string'))", lambda: f"{self.lst(d + 1)}|join({self.string(d + 2)})", lambda: f"{self.any(d + 1)}|string", lambda: f"({self.string(d + 1)} * {r.choice('012')})", lambda: f"'%s:%5.1f:%-4d|' % ({self.any(d + 1)}, {self.num(d + 1)}, {self.num(d + 1)})",
                         lambda: f"'{{}}-{{:>8}}|{{!r}}'.format({self.any(d + 1)}, {self.num(d + 1)}, {self.any(d + 1)})", lambda: f"({self.string(d + 1)} if {self.boolean(d + 1)} else {self.string(d + 1)})", lambda: f"{self.lst(d + 1)}|tojson({r.choice(['', 'indent=1', 'separators=[1|string, s]'])})"])()

    def lst(self, d=0):
        return self.grouped(self.lst_text(d))

    def lst_text(self, d):
        r = self.r
        if d > 3 or r.random() < .2: return r.choice(["l", "le", "ls", "mixed", "nested", "[1, 2]", "(1, 'a')", "m|map(attribute='role')|list", "d.keys()|list", "d.values()|list", "range(4)|list", "tree|map(attribute='v')|list"])
        return r.choice([lambda: "[" + ", ".join(self.any(d + 1) for _ in range(r.randrange(4))) + "]", lambda: f"({self.lst(d + 1)}|list + {self.lst(d + 1)}|list)", lambda: f"{self.string(d + 1)}.{r.choice(['split()', 'split(s)' if 0 else 'split(chr)' if 0 else 'splitlines()', 'rsplit(none, 1)', 'split(none, 1)'])}", lambda: f"{self.string(d + 1)}.split({r.choice(['1|string', repr('l'), repr('a'), repr(', ')])})",
                         lambda: f"{self.lst(d + 1)}|{r.choice(['reverse', 'unique', 'select', 'reject', 'batch(2)', 'slice(2)', 'map(' + repr('string') + ')', 'select(' + repr('string') + ')', 'reject(' + repr('none') + ')', 'select(' + repr('defined') + ')'])}|list", lambda: f"{self.lst(d + 1)}|map('string')|sort{r.choice(['', '(reverse=true)', '(case_sensitive=true)'])}", lambda: f"({self.lst(d + 1)}|list)[{r.choice(['', '1', '-2'])}:{r.choice(['', '3', '-1'])}{r.choice(['', ':2', ':-1'])}]",
                         lambda: f"({self.lst(d + 1)} if {self.boolean(d + 1)} else {self.lst(d + 1)})", lambda: f"{self.dct(d + 1)}|{r.choice(['items|list', 'list'])}", lambda: f"m|{r.choice(['selectattr', 'rejectattr'])}('{r.choice(['content', 'tags', 'n'])}'{r.choice(['', ', ' + repr('defined'), ', ' + repr('none')])})|map(attribute='n')|list"])()

    def dct(self, d=0):
        return self.grouped(self.dct_text(d))

    def dct_text(self, d):
        r = self.r
        if d > 3 or r.random() < .4: return r.choice(["d", "de", "deep", "m[1]", "{'k': 1}", "m[2].tool_calls[0]"])
        return r.choice([lambda: "{" + ", ".join(f"{self.string(d + 2)}: {self.any(d + 1)}" for _ in range(r.randrange(3))) + "}", lambda: f"dict({self.dct(d + 1)}, z={self.any(d + 1)})", lambda: f"({self.dct(d + 1)}.get({self.string(d + 2)}) or {self.dct(d + 1)})"])()

    def boolean(self, d=0):
        return self.grouped(self.boolean_text(d))

    def boolean_text(self, d):
        r = self.r
        if d > 3 or r.random() < .15: return r.choice(["t", "no", "true", "nope", "loop.first if loop is defined else t"])
        return r.choice([lambda: f"({self.boolean(d + 1)} {r.choice(['and', 'or', '==', '!='])} {self.boolean(d + 1)})", lambda: f"(not {self.boolean(d + 1)})", lambda: f"({self.num(d + 1)} {r.choice(['<', '<=', '>', '>=', '==', '!='])} {self.num(d + 1)})", lambda: f"({self.string(d + 1)} {r.choice(['<', '>=', '==', '!=', 'in', 'not in'])} {self.string(d + 1)})",
                         lambda: f"({self.any(d + 1)} {r.choice(['in', 'not in'])} {self.lst(d + 1)})", lambda: f"({self.any(d + 1)} is {r.choice(['', 'not '])}{r.choice(['defined', 'none', 'string', 'mapping', 'iterable', 'sequence', 'number', 'boolean', 'true', 'false', 'integer', 'float', 'undefined', 'callable', 'escaped', 'lower', 'upper'])})", lambda: f"{self.string(d + 1)}.{r.choice(['startswith', 'endswith'])}({self.string(d + 2)})",
                         lambda: f"({self.num(d + 1)}|int is {r.choice(['odd', 'even', 'divisibleby 3'])})", lambda: f"({self.lst(d + 1)} == {self.lst(d + 1)})", lambda: f"{self.string(d + 1)}.{r.choice(['isdigit()', 'isalpha()', 'isspace()', 'islower()', 'isupper()', 'isalnum()', 'istitle()'])}"])()

    def any(self, d=0):
        return self.r.choice([self.num, self.string, self.lst, self.dct, self.boolean, lambda d: self.r.choice(["n", "nope", "d.zz", "none"])])(d)

    def typed_stmt(self, depth=0):
        r = self.r
        body = lambda: "".join(self.typed_stmt(depth + 1) for _ in range(r.randrange(1, 4)))
        if depth > 3 or r.random() < .3: return r.choice(["{{ %s }}" % self.any(1), "{{- %s -}}" % self.any(2), "{{ x }}", "{{ y }}|", "{{ s }}", " \n", "text\n", "  ", " {# c #}\n", "{{ ns.a }}", "{{ loop.index if loop is defined }}", "{{ mac(%s) if mac is defined }}" % self.any(2), "{{ loop.last if loop is defined }}"])
        kind = r.randrange(12)
        if kind < 3: return self.tag("if " + self.boolean(1)) + body() + (self.tag("elif " + self.boolean(1)) + body() if r.random() < .3 else "") + (self.tag("else") + body() if r.random() < .5 else "") + self.tag("endif")
        if kind < 6: return self.tag(r.choice([f"for x in {self.lst(1)}", f"for k, v in {self.dct(1)}.items()", f"for y in {self.string(1)}", f"for x in {self.lst(1)} if {self.boolean(2)}", f"for x in {self.lst(1)} if x is string"])) + body() + r.choice(["", "", self.tag("if " + self.boolean(2)) + self.tag(r.choice(["break", "continue"])) + self.tag("endif") + body()]) + (self.tag("else") + body() if r.random() < .25 else "") + self.tag("endfor")
        if kind < 8: return self.tag(f"set {r.choice(['x', 'y', 'ns.a', 's'])} = {self.string(1)}")
        if kind < 9: return self.tag(r.choice([f"set x, y = {self.any(1)}, {self.any(1)}", "set i = " + self.num(1), "set l = " + self.lst(1)]))
        if kind < 10: return self.tag("set " + r.choice(["x", "y", "s"]) + r.choice(["", "", " | upper", " | trim"])) + body() + self.tag("endset")
        if kind < 11: return self.tag(f"macro mac({r.choice(['x', 'x, y=1', 'v=s, k=v', 'x, y=x'])})") + body() + r.choice(["", "{{ varargs }}", "{{ kwargs }}", "{{ caller() if caller is defined }}"]) + self.tag("endmacro") + "{{ mac(%s) }}" % self.any(2)
        return r.choice([self.tag("with x = %s" % self.any(2)) + body() + self.tag("endwith"), self.tag("filter " + r.choice(["upper", "trim", "replace('a', 'b')|lower"])) + body() + self.tag("endfilter"), self.tag("generation") + body() + self.tag("endgeneration")])

    def template(self):
        kind = self.r.random()
        if kind < .3: return "{{ " + self.any() + " }}"
        if kind < .7: return "{% set ns = namespace(a=0) %}" + "".join(self.typed_stmt() for _ in range(self.r.randrange(1, 6)))
        if kind < .85: return "{{ " + self.expr() + " }}"
        return "{% set ns = namespace(a=0) %}" + "".join(self.stmt() for _ in range(self.r.randrange(1, 6)))

# fmt: on


def main():
    env = environment()
    if sys.argv[1] == "--random":
        maker = Maker(int(sys.argv[3]))
        tests = [render(env, maker.template()) for _ in range(int(sys.argv[2]))]
        address = re.compile(r"0x[0-9a-f]{6}|<\w+ object|<function|<built-in", re.I)
        tests = [t for t in tests if not address.search(t.get("text", ""))]
    else:
        lines = re.split(r"(?<!\\)\n", EXPRESSIONS.strip("\n"))
        tests = [render(env, "{{ " + line + " }}") for line in lines]
        tests += [render(env, s) for s in SNIPPETS]
    with open(sys.argv[-1], "w", encoding="ascii", newline="\n") as f:
        f.write('{"vars": ' + json.dumps(VARS) + ',\n"tests": [\n')
        f.write(",\n".join(map(json.dumps, tests)) + "\n]}\n")
    print(len(tests), "templates,", sum("error" in t for t in tests), "errors")


if __name__ == "__main__":
    main()

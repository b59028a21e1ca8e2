"""Writes tests/fixtures/chat_templates/cases.json: templates of our own, rendered by Jinja2 (hf_jinja.py)."""

import json
import pathlib

import jinja2

from hf_jinja import render

TOOLS = [{"type": "function", "function": {"name": "weather", "description": "It says \"how\" it is <b>&</b>",
          "parameters": {"type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
                         "required": ["city"]}}}]
CHAT = [{"role": "system", "content": " Be brief. "}, {"role": "user", "content": "Grüß dich, 世界 😀\n"},
        {"role": "assistant", "content": "<think>\nhm\n</think>\n\nHello!"}, {"role": "user", "content": "Bye"}]
CALLS = [{"role": "user", "content": [{"type": "text", "text": "one"}, {"type": "image"}]},
         {"role": "assistant", "content": None,
          "tool_calls": [{"function": {"name": "weather", "arguments": {"city": "Ulm", "days": 2, "x": 1.5, "n": None}}}]},
         {"role": "tool", "content": "{\"t\": 3}"}]

TEMPLATES = {
    "chatml": "{% for m in messages %}\n{{ '<|im_start|>' + m['role'] + '\\n' + m.content + '<|im_end|>' + '\\n' }}\n"
              "{% endfor %}\n{% if add_generation_prompt %}\n{{ '<|im_start|>assistant\\n' }}\n{% endif %}\n",
    "bos_and_trim": "{{ bos_token }}{%- for m in messages -%}[{{ m.role | upper }}] {{ m.content | trim }} {% endfor %}",
    "tojson": "{% for t in tools %}{{ t | tojson }}\n{{ t | tojson(indent=4, ensure_ascii=False) }}\n"
              "{{ t.function.name | tojson }}{% endfor %}",
    "tojson_ascii": "{{ messages[1] | tojson(ensure_ascii=True) }}{{ {'b': 1, 'a': [true, none, 2.0, 1e20]} | tojson(sort_keys=True) }}"
                    "{{ [1, {'k': []}, {}] | tojson(indent=2) }}{{ {'a': 1, 'b': 2} | tojson(separators=(',', ':')) }}",
    "slices": "{% if messages[0].role == 'system' %}{% set rest = messages[1:] %}{% endif %}{{ rest | length }}"
              "{% for m in messages[::-1] %}{{ loop.index0 }}{{ m.role }}{% endfor %}{{ messages[-1].content }}{{ 'abcdef'[1:-2] }}",
    "namespace": "{% set ns = namespace(last=-1, seen=false) %}{% for m in messages %}{% if m.role == 'user' %}"
                 "{% set ns.last = loop.index0 %}{% set ns.seen = true %}{% endif %}{% endfor %}{{ ns.last }} {{ ns.seen }}",
    "loop_controls": "{% for m in messages %}{% if loop.first %}{% continue %}{% endif %}{% if loop.index > 3 %}{% break %}{% endif %}"
                     "{{ loop.previtem.role }}>{{ m.role }}>{{ loop.nextitem.role if not loop.last }};{% endfor %}",
    "thinking": "{% for m in messages %}{% if '</think>' in m.content %}{{ m.content.split('</think>')[-1].lstrip('\\n') }}|"
                "{{ m.content.split('</think>')[0].rstrip('\\n').split('<think>')[-1].strip('\\n') }}{% endif %}{% endfor %}"
                "{% if enable_thinking is defined and enable_thinking is false %}<think>\n\n</think>\n\n{% endif %}",
    "generation": "{% for m in messages %}{% if m.role == 'assistant' %}{% generation %}\n  {{ m.content }}\n{% endgeneration %}"
                  "{%- else -%}{{ m.role }}{% endif %}{%- generation -%} x {%- endgeneration -%}{% endfor %}",
    "tests": "{% for v in [none, 1, 1.5, 'a', [1], {'a': 1}, true] %}{{ v is mapping }}{{ v is string }}{{ v is iterable }}"
             "{{ v is sequence }}{{ v is number }}{{ v is none }}{{ v is boolean }} {% endfor %}{{ missing is defined }}",
    "filters": "{{ messages | rejectattr('role', 'equalto', 'user') | map(attribute='role') | join(',') }}"
               "{{ messages | selectattr('role', 'eq', 'user') | list | length }}{{ missing | default('d') }}{{ 'a,b' | replace(',', ';') }}"
               "{{ ['b', 'a'] | sort | first }}{{ {'k': 1, 'j': 2} | dictsort }}{{ 'ab' | capitalize }}{{ 3 | string + 'x' }}{{ '  x' | indent(2) }}",
    "python_text": "{{ true }} {{ none }} {{ [1, 'a', none, true, 2.5] }} {{ {'a': \"it's\", 'b': [1.0]} }} {{ (1, 'x') }} {{ 'q\"' ~ 1 ~ none }}"
                   " {{ 7 // 2 }} {{ 7 / 2 }} {{ -7 % 3 }} {{ 2 ** 3 }} {{ 1e20 }} {{ 0.1 + 0.2 }}",
    "methods": "{{ 'Hello World'.lower() }}{{ 'a b'.title() }}{{ 'x'.startswith('x') }}{{ 'a-b'.replace('-', '+') }}{{ {'a': 1}.get('b', 2) }}"
               "{% for k, v in {'z': 1, 'a': 2}.items() %}{{ k }}={{ v }};{% endfor %}{{ {'z': 1}.keys() | list }}{{ ','.join(['a', 'b']) }}"
               "{{ 'abc'.find('c') }}{{ 'a\\nb'.splitlines() }}{{ ' x '.strip() }}{{ 'x%d'.endswith('d') }}",
    "macros": "{% macro show(m, depth=0) %}{{ '-' * depth }}{{ m.role }}{% if depth < 2 %}{{ show(m, depth + 1) }}{% endif %}{% endmacro %}"
              "{% for m in messages %}{{ show(m) }} {% endfor %}",
    "content_parts": "{% for m in messages %}{% if m.content is string %}{{ m.content }}{% elif m.content is iterable and m.content is not mapping %}"
                     "{% for p in m.content %}{% if p.type == 'text' %}{{ p.text }}{% else %}<image>{% endif %}{% endfor %}{% endif %}"
                     "{% if m.tool_calls is defined and m.tool_calls %}{% for c in m.tool_calls %}{{ c.function.name }}({{ c.function.arguments | tojson }})"
                     "{% for k, v in c.function.arguments | items %}{{ k }}:{{ v }},{% endfor %}{% endfor %}{% endif %}\n{% endfor %}",
    "whitespace": "  {% if true %}  \n   a\n  {%- if true %}  b{% endif +%}\n {% endif %}\n\n{# note #}\n  {{- ' c ' -}}  \n\n",
    "raises": "{% if messages[0].role != 'user' %}{{ raise_exception('Roles must start with user: ' + messages[0].role) }}{% endif %}",
    "undefined_attribute": "{{ missing.attribute }}",
    "else_and_filters_block": "{% for m in [] %}x{% else %}none{% endfor %}{% filter upper %}abc{% endfilter %}{% set t %}cap {{ 1 }}{% endset %}[{{ t }}]",
    "conditionals": "{{ 'a' if messages else 'b' }}{{ ('x' in ['x']) and not ('y' in 'xyz') }}{{ 1 < 2 < 3 }}{{ messages | length > 2 }}"
                    "{%- if tools is not none and tools is defined -%} tools {%- endif -%}",
}


def main():
    variants = [
        {"messages": CHAT, "tools": TOOLS, "documents": None, "add_generation_prompt": True, "bos_token": "<s>",
         "eos_token": "</s>", "enable_thinking": False},
        {"messages": CALLS, "tools": None, "documents": None, "add_generation_prompt": False, "bos_token": "<s>",
         "eos_token": "</s>"},
    ]
    cases = []
    for name, template in TEMPLATES.items():
        for number, variables in enumerate(variants):
            case = {"name": f"{name}_{number}", "template": template, "variables": number}
            try:
                case["expected"] = render(template, variables)
            except jinja2.exceptions.UndefinedError:
                case["error"] = "undefined"
            except jinja2.exceptions.TemplateError as error:
                case["error"] = str(error)
            except TypeError:
                continue
            cases.append(case)
    path = pathlib.Path(__file__).parent.parent / "fixtures" / "chat_templates" / "cases.json"
    path.write_text(json.dumps({"variables": variants, "cases": cases}, ensure_ascii=False, indent=1) + "\n")
    print(f"{len(cases)} cases -> {path}")


main()

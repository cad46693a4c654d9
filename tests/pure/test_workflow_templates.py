"""`{{ … }}` in a file fills in parameters, and can do nothing else, whoever wrote the file."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentless.errors import UsageError
from agentless.rules.workflows.templates import MAX_TEXT, render, typed

NAMES = {
    "params": typed(
        {
            "epochs": "10",
            "lrs": ["0.1", "0.01"],
            "zip": "01234",
            "fast": "true",
            "items": "x",
            "text": "ab",
            "long": "b" * 9000,
        }
    )
}


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("plain {x}", "plain {x}"),
        ("{{ params.epochs }}", "10"),
        ("--n={{ params.epochs * 2 + 1 }}", "--n=21"),
        ("{{ params.lrs }}", ["0.1", "0.01"]),
        ("{{ params.lrs | join(',') }}!", "0.1,0.01!"),
        ("{{ params.zip }} {{ params.fast }}", "01234 true"),
        ("{{ 'a' if params.epochs > 5 else 'b' }}", "a"),
        ("{{ params.items }}{{ params['text'] | upper | replace('A', 'c') }}", "xcB"),
        ("{{ '{{' }}.Names}}", "{{.Names}}"),
        ("{{ '{#' }}", "{#"),
        ("{{--1}}", "-1"),
        ("{{ params.text ~ '-' ~ params.epochs }}", "ab-10"),
        ("x{{ params.text ~ params.fast }}", "xabtrue"),
    ],
)
def test_expressions_are_filled_in(text, found):
    assert render(text, NAMES) == found


@pytest.mark.parametrize(
    "text",
    [
        "{{ params.nope }}", "{{ nope }}", "{{ params.", "{{.Names}}", "{% for x in params.lrs %}a{% endfor %}",
        "{% include '/etc/passwd' %}", "{{ ''.__class__.__mro__ }}", "{{ params.text.upper() }}", "{{ range(10) }}",
        "{{ 'a' * 1000000000 }}", "{{ params.lrs * 1000000000 }}", "{{ 9 ** 9 ** 9 }}", "{{ '%999999999d' % 1 }}",
        "{{ 'a' | center(999999999) }}", "{{ 'a' | format }}", "{{ 1 // 0 }}", "{{ self }}", "{{ cycler }}",
        "a{{ params.lrs }}", "{{ params }} x", "{{ " + "(" * 9000 + " }}", "{{ " + "-" * 40_000 + "1 }}",
        "{{ '" + "a" * MAX_TEXT + "' }}",
        "{{ 'aaaaaaaaaa'" + " | replace('a', 'aaaaaaaaaaaaaaaaaaaa')" * 20 + " }}",
        "{{ params.lrs" + " | join('aaaaaaaaaaaaaaaaaaaaaaaaaaaa') | list" * 20 + " }}",
        "{{ '\"'" + " | tojson" * 200 + " }}",
        '{# "#}{{ 1 }}{#" ~ 7**7 #}', '{# ["#}{{ 1 }}{#"].append(1) #}', "{# a #}{{ 1 }}",
        "{{ params.text" + " ~ params.long" * 20 + " }}", "{{ params.text" + " + params.long" * 20 + " }}",
        "{{ params.long }}" * 20, "a{{ params.text" + " ~ params.long" * 20 + " }}",
        "{{ 99999999999999999" + " * 99999999999999999" * 500 + " }}",
    ],
)  # fmt: skip
def test_nothing_can_run_away(text):
    with pytest.raises(UsageError):
        render(text, NAMES)


@given(st.text("{}%#'\"()[].|+-*/~ aparms1\n", max_size=60))
def test_any_text_is_filled_in_or_refused(text):
    try:
        found = render(f"{{{{ {text}", NAMES)
    except UsageError:
        return
    assert isinstance(found, (str, list, dict))


@given(st.text(max_size=20))
def test_a_parameter_is_written_as_it_was(text):
    assert render("{{ params.x }}{{ params.y }}", {"params": typed({"x": text, "y": "."})}) == f"{text}."

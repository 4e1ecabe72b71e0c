"""The graph of a playbook and its texts."""

from noetl.dsl.graph import as_json, graph, to_dot, to_mermaid
from noetl.dsl.parse import read
from noetl.dsl.playbook.document import Playbook

BOOK = """\
apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: demo, path: demo/graph}
executor: {spec: {final_step: last}}
workflow:
  - step: start
    desc: begins
    tool: [{kind: http, url: u, timeout: 1}, {kind: python, code: "result = 1"}]
    next:
      arcs:
        - {step: each, when: "{{ output.data.n > 3 and \\"a|b\\" }}"}
        - {step: last, on: error}
        - {step: end, when: true}
  - step: each
    loop: {in: [1], iterator: i, spec: {mode: parallel, max_in_flight: 2}}
    tool: {kind: noop}
    next:
      arcs:
        - {step: end, when: "event.name == 'loop.done' and workload.a_very_long_condition_is_cut"}
  - step: last
    tool: [{kind: noop}, {kind: noop}, {kind: noop}, {kind: noop}, {kind: noop}]
"""


def test_a_graph_has_every_step_arc_and_the_undefined_end() -> None:
    shown = as_json(graph(read(BOOK, Playbook)))
    assert [node["name"] for node in shown["nodes"]] == ["start", "each", "last", "end"]
    assert shown["nodes"][0] == {
        "name": "start", "kinds": ["http", "python"], "desc": "begins", "loop": None,
        "is_entry": True, "is_final": False, "is_defined": True,
    }  # fmt: skip
    assert (shown["nodes"][1]["loop"], shown["nodes"][2]["is_final"]) == ("parallel", True)
    assert [(edge["source"], edge["target"], edge["on"]) for edge in shown["edges"]] == [
        ("start", "each", "success"), ("start", "last", "error"), ("start", "end", "success"),
        ("each", "end", "any"),
    ]  # fmt: skip
    assert shown["edges"][0]["when"] == 'output.data.n > 3 and "a|b"'
    assert shown["edges"][2]["when"] == "true"


def test_a_defined_end_is_an_ordinary_step() -> None:
    text = BOOK.replace("workflow:\n", "workflow:\n  - {step: end}\n")
    assert next(node.name for node in graph(read(text, Playbook)).nodes) == "end"
    assert len(graph(read(text, Playbook)).nodes) == 4


def test_mermaid_shows_labels_as_they_are() -> None:
    assert to_mermaid(graph(read(BOOK, Playbook))) == (
        "flowchart TD\n"
        '  n0(["start<br/>http #gt; python"])\n'
        '  n1["each<br/>noop (loop parallel)"]\n'
        '  n2["last<br/>noop #gt; noop #gt; noop #gt; noop ..."]\n'
        '  n3(["end"])\n'
        '  n0 -- "output.data.n #gt; 3 and #quot;a#124;b#quot;" --> n1\n'
        '  n0 -- "[error]" --> n2\n'
        '  n0 -- "true" --> n3\n'
        "  n1 -- \"event.name == 'loop.done' and workload.a_very_long_condit... [any]\" --> n3\n"
    )


def test_dot_escapes_quotes() -> None:
    text = to_dot(graph(read(BOOK, Playbook)))
    assert text.startswith('digraph "demo/graph" {\n')
    assert '  "start" [label="start\\nhttp > python"];\n' in text
    assert '  "end" [label="end", shape=oval];\n' in text
    assert '  "start" -> "each" [label="output.data.n > 3 and \\"a|b\\""];\n' in text
    assert '  "start" -> "last" [label="[error]"];\n' in text


def test_an_arc_without_words_has_no_label() -> None:
    text = BOOK.replace(", on: error", "")
    assert '  "start" -> "last";\n' in to_dot(graph(read(text, Playbook)))
    assert "  n0 --> n2\n" in to_mermaid(graph(read(text, Playbook)))

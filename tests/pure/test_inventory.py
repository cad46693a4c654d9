"""The inventory: what a file means, and what an admin reads about one that cannot be meant."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, get_args

import pytest

from agentless.controller import plugins
from agentless.errors import InventoryError
from agentless.formats.marked_yaml import BrokenYaml, read_yaml
from agentless.inventory.inventory import MAX_MISTAKES, Inventory, load, stamp_of
from agentless.inventory.schema import Kept, Node, Policy
from agentless.model.address import Address
from agentless.model.nodes.node import NodeConfig
from agentless.model.tasks.retention import Keep

DATA = Path(__file__).parent / "data" / "inventory"
EXAMPLE = Path(__file__).parents[2] / "inventory.example.yaml"


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home whose ~/.ssh/config names gpu1, so that no test depends on who runs it."""
    home = tmp_path / "home"
    (home / ".ssh").mkdir(parents=True)
    (home / ".ssh" / "config").write_text("Host gpu1\n  HostName 10.0.0.1\n")
    monkeypatch.setenv("HOME", str(home))
    return home


def read(folder: Path, text: str | bytes) -> Inventory:
    path = folder / "inventory.yaml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return load(path)


def node(folder: Path, text: str, defaults: str = "{}") -> NodeConfig:
    """The one node that `text` describes."""
    return read(folder, f"version: 1\ndefaults: {defaults}\nnodes:\n  node1: {text}\n").nodes["node1"]


def message(folder: Path, text: str | bytes) -> str:
    with pytest.raises(InventoryError) as caught:
        read(folder, text)
    return str(caught.value)


def test_a_node_needs_only_a_host(tmp_path: Path) -> None:
    assert node(tmp_path, "{host: 10.0.0.11}") == NodeConfig("node1", "10.0.0.11")


def test_every_key_arrives_in_its_type(tmp_path: Path) -> None:
    text = (
        "{host: gpu1.lab, user: ubuntu, port: 2222, identity_file: /k/id, jump: me@bastion, connection: paramiko, "
        "docker: docker -H unix:///run/docker.sock, image: 'python:3.12', labels: {rack: a}, exclude_gpus: [3, 1, 3]}"
    )
    assert node(tmp_path, text) == NodeConfig(
        name="node1",
        host="gpu1.lab",
        user="ubuntu",
        port=2222,
        identity_file="/k/id",
        jump="me@bastion",
        connection="paramiko",
        docker=("docker", "-H", "unix:///run/docker.sock"),
        image="python:3.12",
        labels={"rack": "a"},
        exclude_gpus=(1, 3),
    )


def test_defaults_hold_for_nodes_that_do_not_say_otherwise(tmp_path: Path) -> None:
    defaults = "{user: ubuntu, port: 2222, docker: sudo docker, exclude_gpus: [0], jump: bastion}"
    assert node(tmp_path, "{host: h, port: 22, exclude_gpus: []}", defaults) == NodeConfig(
        "node1", "h", user="ubuntu", port=22, docker=("sudo", "docker"), exclude_gpus=(), jump="bastion"
    )


def test_null_on_a_node_takes_a_default_back(tmp_path: Path) -> None:
    defaults = "{user: ubuntu, jump: bastion, docker: sudo docker, connection: paramiko, labels: {site: lab}}"
    text = "{host: h, user: null, jump: ~, docker: , connection: null, labels: null}"
    assert node(tmp_path, text, defaults) == NodeConfig("node1", "h")


def test_labels_of_a_node_are_added_to_the_defaults(tmp_path: Path) -> None:
    found = node(tmp_path, "{host: h, labels: {rack: b, gpu: A100}}", "{labels: {site: lab, rack: a}}")
    assert found.labels == {"site": "lab", "rack": "b", "gpu": "A100"}


def test_a_value_is_the_text_that_was_written_not_what_yaml_makes_of_it(tmp_path: Path) -> None:
    labels = "{bool: no, octal: 012, time: 1:30, float: 1.10, date: 2024-01-01, on: on, 5: 0x1F}"
    expected = {
        "bool": "no",
        "octal": "012",
        "time": "1:30",
        "float": "1.10",
        "date": "2024-01-01",
        "on": "on",
        "5": "0x1F",
    }
    assert node(tmp_path, f"{{host: h, labels: {labels}}}").labels == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("9400", Address("127.0.0.1", 9400)),
        ("localhost:9400", Address("127.0.0.1", 9400)),
        ("192.0.2.1:80", Address("192.0.2.1", 80)),
        ("'[::1]:9400'", Address("::1", 9400)),
        ("null", None),
    ],
)
def test_metrics_are_served_where_it_says_and_without_an_address_on_loopback(
    tmp_path: Path, text: str, expected: Address | None
) -> None:
    assert read(tmp_path, f"version: 1\nmetrics: {text}\nnodes: {{a: {{host: h}}}}").metrics == expected


@pytest.mark.parametrize(
    "text", ["0", "65536", ":9400", "127.0.0.1", "127.0.0.1:", "1.2.3:9400", "::1:9400", "{port: 1}", "[]"]
)
def test_what_is_no_address_for_metrics_is_refused(tmp_path: Path, text: str) -> None:
    said = message(
        tmp_path, f"version: 1\nmetrics: {text if text[0] in '{[' else repr(text)}\nnodes: {{a: {{host: h}}}}"
    )
    assert re.search(r":2:10: metrics: is .*; must be a port of this machine, like 9400", said)


def test_names_that_yaml_takes_for_something_else_are_names(tmp_path: Path) -> None:
    text = "version: 1\nnodes: {no: {host: a}, 12: {host: b}, 1.10: {host: c}, null: {host: d}}"
    assert list(read(tmp_path, text).nodes) == ["no", "12", "1.10", "null"]


def test_a_quoted_number_is_a_number(tmp_path: Path) -> None:
    assert node(tmp_path, '{host: h, port: "2222"}').port == 2222


def test_a_local_node_is_this_machine(tmp_path: Path) -> None:
    assert node(tmp_path, "{connection: local}").host == "localhost"


def test_a_local_default_needs_no_host_either(tmp_path: Path) -> None:
    assert node(tmp_path, "", "{connection: local}").host == "localhost"


@pytest.mark.parametrize("text", ["", "{}", "{labels: {rack: a}}"])
def test_a_name_of_ssh_config_needs_no_host(tmp_path: Path, text: str) -> None:
    assert read(tmp_path, f"version: 1\nnodes:\n  gpu1: {text}\n").nodes["gpu1"].host == "gpu1"


def test_a_name_unlike_one_of_ssh_config_is_told_the_nearest(tmp_path: Path) -> None:
    assert message(tmp_path, "version: 1\nnodes:\n  gpu11:\n").endswith("did you mean 'gpu1'?")


@pytest.mark.parametrize("host", ["fe80::1%eth0", "::1", "gpu_1.lab", "münchen.lab"])
def test_hosts_are_names_and_addresses(tmp_path: Path, host: str) -> None:
    assert node(tmp_path, f"{{host: '{host}'}}").host == host


@pytest.mark.parametrize(
    ("written", "meant"), [("~/.ssh/id", "home/.ssh/id"), ("keys/id", "keys/id"), ("/k/my id", "/k/my id")]
)
def test_a_key_file_is_found_from_any_folder(tmp_path: Path, written: str, meant: str) -> None:
    assert node(tmp_path, f"{{host: h, identity_file: {written}}}").identity_file == str(tmp_path / meant)


def test_the_order_of_the_file_is_kept(tmp_path: Path) -> None:
    text = "version: 1\nnodes: {c: {host: h}, a: {host: h}, b: {host: h}}"
    assert list(read(tmp_path, text).nodes) == ["c", "a", "b"]


def test_an_inventory_cannot_be_changed(tmp_path: Path) -> None:
    nodes: Any = read(tmp_path, "version: 1\nnodes: {a: {host: h}}").nodes
    with pytest.raises(TypeError):
        nodes["b"] = nodes["a"]


LONGER = pytest.mark.parametrize("longer", ["", "\n# " + "x" * 20_000], ids=["short", "long"])
"""Another parser reads long files."""


@LONGER
@pytest.mark.parametrize("text", ["nodes: !", "nodes: &x !", "nodes: [! , a]", "nodes: ! a"])
def test_a_tag_without_a_name_is_refused(text: str, longer: str) -> None:
    assert [each.text for each in read_yaml(text + longer).problems] == ["a '!' without a name; write the plain value"]


@LONGER
@pytest.mark.parametrize("text", ["nodes: {}\n\ufeff", "nodes: a\ufeff", "nodes: \ufeff"])
def test_a_mark_of_the_byte_order_inside_a_file_is_refused(text: str, longer: str) -> None:
    with pytest.raises(BrokenYaml, match="invalid character"):
        read_yaml(text + longer)


def test_a_mark_of_the_byte_order_may_begin_a_file() -> None:
    assert read_yaml("\ufeffa: b").data == {"a": "b"}


def test_anchors_and_merge_keys_work(tmp_path: Path) -> None:
    text = """
        version: 1
        nodes:
          node1: &usual {host: a, port: 2222, labels: &labels {rack: a}}
          node2: {<<: *usual, host: b}
          node3: {<<: [{port: 1, user: u}, *usual], host: c}
          node4: {host: d, labels: *labels}
    """
    nodes = read(tmp_path, text).nodes.values()
    assert [(n.host, n.port, n.user, n.labels) for n in nodes] == [
        ("a", 2222, None, {"rack": "a"}),
        ("b", 2222, None, {"rack": "a"}),
        ("c", 1, "u", {"rack": "a"}),
        ("d", None, None, {"rack": "a"}),
    ]


def test_defaults_with_every_line_commented_out_are_none(tmp_path: Path) -> None:
    text = "version: 1\ndefaults:\n  # user: ubuntu\nnodes:\n  node1: {host: h}\n"
    assert read(tmp_path, text).nodes["node1"] == NodeConfig("node1", "h")


def test_a_file_from_windows_is_read(tmp_path: Path) -> None:
    text = "\ufeffversion: 1\r\nnodes:\r\n  node1: {host: h}\r\n"
    assert read(tmp_path, text).nodes["node1"].host == "h"


def test_the_shared_folder_is_the_inventorys(tmp_path: Path) -> None:
    text = "version: 1\ndefaults: {shared_dir: /mnt/shared}\nnodes: {a: {host: h}}"
    assert read(tmp_path, text).shared_dir == "/mnt/shared"


@pytest.mark.parametrize("mistake", sorted(DATA.glob("*.yaml")), ids=lambda path: path.stem)
def test_all_mistakes_of_a_file_are_told_with_their_place(mistake: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each `NAME.yaml` in the data folder with the message in `NAME.txt`."""
    monkeypatch.chdir(DATA)
    with pytest.raises(InventoryError) as caught:
        load(Path(mistake.name))
    assert str(caught.value).splitlines() == mistake.with_suffix(".txt").read_text().splitlines()


def test_one_mistake_made_many_times_is_told_often_enough(tmp_path: Path) -> None:
    text = "version: 1\nnodes:\n" + "".join(f"  n{i}: {{host: h, prot: 1}}\n" for i in range(500))
    lines = message(tmp_path, text).splitlines()
    assert (len(lines), lines[-1]) == (
        MAX_MISTAKES + 1,
        f"{tmp_path}/inventory.yaml: more errors; correct these 100 first",
    )


def test_the_stamp_tells_when_the_file_has_changed(tmp_path: Path) -> None:
    inventory = read(tmp_path, "version: 1\nnodes: {a: {host: h}}")
    before = stamp_of(inventory.path) == inventory.stamp
    read(tmp_path, "version: 1\nnodes: {a: {host: h}, b: {host: h}}")
    assert (before, stamp_of(inventory.path) == inventory.stamp) == (True, False)


def test_a_file_that_is_gone_has_no_stamp(tmp_path: Path) -> None:
    assert stamp_of(tmp_path / "none.yaml") is None


def test_without_a_word_a_day_of_containers_and_a_gigabyte_of_logs_are_kept(tmp_path: Path) -> None:
    for words in ("", "keep:\n", "keep: {log: null}\n"):
        assert read(tmp_path, f"version: 1\n{words}nodes: {{box: {{connection: local}}}}").keep == Keep(
            86400.0, 16 * 2**20, 2**30
        )


def test_what_is_kept_is_written_as_sizes_and_times(tmp_path: Path) -> None:
    text = "version: 1\nkeep: {containers: 1h30min, log: 2MB, logs: 1.5GiB}\nnodes: {box: {connection: local}}"
    assert read(tmp_path, text).keep == Keep(5400.0, 2_000_000, 3 * 2**29)


def test_a_size_without_a_unit_is_megabytes_as_everywhere(tmp_path: Path) -> None:
    text = "version: 1\nkeep: {log: 16, logs: 1024}\nnodes: {box: {connection: local}}"
    assert read(tmp_path, text).keep == Keep(86400.0, 16_000_000, 1024_000_000)


@pytest.mark.parametrize(("key", "number", "meant"), [("log", "16777216", "16MiB"), ("logs", "1073741824", "1GiB")])
def test_bytes_without_a_unit_get_a_sentence_that_says_what_to_write(
    tmp_path: Path, key: str, number: str, meant: str
) -> None:
    text = f"version: 1\nkeep: {{{key}: {number}}}\nnodes: {{box: {{connection: local}}}}"
    with pytest.raises(InventoryError, match=rf"keep\.{key}: is '{number}'; has no unit, .* did you mean {meant}\?"):
        read(tmp_path, text)


def test_tasks_on_a_node_that_slurm_manages_are_allowed_for_that_node_only(tmp_path: Path) -> None:
    assert node(tmp_path, "{host: gpu1, allow: slurm}").allow_slurm
    assert not node(tmp_path, "{host: gpu1}").allow_slurm
    with pytest.raises(InventoryError, match="unknown key 'allow'"):
        node(tmp_path, "{host: gpu1}", "{allow: slurm}")
    with pytest.raises(InventoryError, match="must be 'slurm'"):
        node(tmp_path, "{host: gpu1, allow: slrum}")


def test_the_example_loads() -> None:
    inventory = load(EXAMPLE)
    assert (list(inventory.nodes), inventory.nodes["node2"].exclude_gpus, inventory.shared_dir) == (
        ["node1", "node2", "node3", "node4", "node5", "box", "drained", "windows", "robot"],
        (3,),
        "/mnt/shared",
    )


def test_a_node_has_other_addresses(tmp_path) -> None:
    keys = '{host: h, address: [gpu1-vpn, "192.0.2.7:2222", gpu1-vpn, "[fe80::1]:22"]}'
    assert node(tmp_path, keys).addresses == ("gpu1-vpn", "192.0.2.7:2222", "[fe80::1]:22")


@pytest.mark.parametrize(
    ("address", "says"),
    [
        ("gpu1-vpn", "must be a list of addresses, like"),
        ("[root@h]", "must be a host name, an address or an alias"),
        ("['h:0']", "must be a host name, an address or an alias"),
    ],
)
def test_an_address_that_cannot_be_meant(tmp_path, address, says) -> None:
    with pytest.raises(InventoryError, match=says):
        node(tmp_path, f"{{host: h, address: {address}}}")


def test_the_example_shows_every_key() -> None:
    shown = set(re.findall(r"\b(\w+):", EXAMPLE.read_text()))
    assert (set(Node.model_fields) | set(Kept.model_fields)) - shown == set()


@pytest.mark.parametrize(
    ("words", "policy"), [("", "pack"), ("queue:\n", "pack"), ("queue: {policy: spread}\n", "spread")]
)
def test_the_policy_is_that_of_the_file_or_pack(tmp_path: Path, words: str, policy: str) -> None:
    file = tmp_path / "inventory.yaml"
    file.write_text(f"version: 1\n{words}nodes: {{box: {{connection: local}}}}\n")
    assert load(file).policy == policy


def test_there_is_a_file_for_each_policy_that_an_inventory_may_name() -> None:
    assert sorted(get_args(Policy)) == list(plugins.names("rules.scheduling.policies"))


def test_a_policy_that_is_none_is_refused_with_the_nearest(tmp_path: Path) -> None:
    file = tmp_path / "inventory.yaml"
    file.write_text("version: 1\nqueue: {policy: sprad}\nnodes: {box: {connection: local}}\n")
    with pytest.raises(InventoryError, match="did you mean 'spread'"):
        load(file)

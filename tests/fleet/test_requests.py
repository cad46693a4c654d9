"""Requests that no program of ours sends: refused with a sentence, never an internal error. Found by `make fuzz`."""

from __future__ import annotations

from itertools import product

from tests.fleet.test_owners import ask

HUGE = 10**30


def task(**spec):
    return {"spec": {"command": ["true"], **spec}}


NOT_KEPT = [
    task(terms={"max_parallel": HUGE}),
    task(memory=HUGE),
    task(parameters={"lr": "\ud800"}),
    task(parameters={"\ud800": "1"}),
    task(command=["echo", "\ud800"]),
]


async def test_a_task_that_cannot_be_kept_is_refused(desk):
    async with desk.running() as controller:
        for body, path in product(NOT_KEPT, ("/v1/tasks", "/v1/explain")):
            status, said = await ask(controller, "POST", path, body=body)
            assert (status, said["error"]) == (400, "UsageError"), (path, body)


async def test_numbers_beyond_all_lines_and_events_are_refused_and_a_log_since_no_moment(desk):
    async with desk.running() as controller:
        over = await desk.ended("echo said", "n1::0")
        asked = [(f"/v1/tasks/{over}/logs", {"tail": number, "follow": "false"}) for number in (2**63, HUGE)]
        asked += [("/v1/events", {"after": number, "follow": "false"}) for number in (2**63, HUGE)]
        asked += [(f"/v1/tasks/{over}/logs", {"since": since}) for since in ("nan", "inf", "-inf")]
        for path, query in asked:
            status, said = await ask(controller, "GET", path, **query)
            assert (status, said["error"]) == (400, "UsageError"), (path, query)


async def test_a_request_that_is_too_large_is_refused(desk):
    async with desk.running() as controller:
        status, said = await ask(controller, "POST", "/v1/tasks", body=task(name="x" * (65 << 20)))
        assert (status, said["message"]) == (400, "the request has more than 64 MiB; send less at a time")


async def test_a_path_that_is_no_text_is_refused(desk):
    async with desk.running() as controller:
        status, said = await ask(controller, "POST", "/v1/files/n1/look", body={"paths": ["\ud800"]})
        assert (status, said["error"]) == (400, "UsageError")


async def test_the_errors_of_the_api_are_part_of_its_description(desk):
    async with desk.running() as controller:
        _, described = await ask(controller, "GET", "/openapi.json")
        operations = [each for path in described["paths"].values() for each in path.values()]
        assert all("422" not in each["responses"] for each in operations)
        kinds = {each["responses"]["default"]["content"]["application/json"]["schema"]["$ref"] for each in operations}
        assert kinds == {"#/components/schemas/Problem"}
        assert set(described["components"]["schemas"]["Problem"]["properties"]) == {"error", "message", "exit_code"}


async def test_the_headers_of_a_request_are_part_of_its_description(desk):
    async with desk.running() as controller:
        _, described = await ask(controller, "GET", "/openapi.json")
        for operation in (each for path in described["paths"].values() for each in path.values()):
            names = {each["name"] for each in operation["parameters"] if each["in"] == "header"}
            assert names == {"x-agentless-inventory", "x-agentless-version", "x-agentless-owner"}

"""What schemathesis is told of the broker: topics that are there, waits that stay short, and what a refusal may say."""

import atexit
import base64
import collections
import json
import os
import struct
import zlib

import requests
import schemathesis
from hypothesis import strategies as st
from schemathesis.generation.meta import TestPhase

URL = os.environ["RINGMAIN_URL"]
# Where most requests go that name a topic or a group: generated names seldom meet one that is there.
TOPIC, GROUP = "payments", "billing"
# What a loaded machine may bring; no other fault of the broker's side is borne.
UNAVAILABLE = {(503, "busy"), (507, "storage_full")}
WAIT_MS_MAX = 20
BATCHES = ("application/x-ndjson", "application/vnd.ringmain.batch")
# The forms of answers, which no request has a part in.
ANSWERS = (
    "Acknowledged",
    "DeadLetter",
    "Deleted",
    "DividedBatch",
    "Error",
    "Group",
    "GroupInPartition",
    "GroupMessages",
    "Health",
    "Message",
    "Page",
    "PartitionStats",
    "Published",
    "PublishedBatch",
    "Retention",
    "StoredPart",
    "Topic",
)

session = requests.Session()


def payload_line(payload, key):
    message = {"payload": base64.b64encode(payload).decode()}
    return json.dumps(message if key is None else {**message, "key": key}).encode()


lines = st.builds(payload_line, st.binary(max_size=64), st.none() | st.text(max_size=16))
framed = st.binary(max_size=64).map(lambda payload: struct.pack("<I", len(payload)) + payload)
schemathesis.openapi.media_type(BATCHES[0], st.lists(lines, min_size=1, max_size=8).map(b"\n".join))
schemathesis.openapi.media_type(BATCHES[1], st.lists(framed, min_size=1, max_size=8).map(b"".join))


@schemathesis.serializer(*BATCHES)
def bytes_as_they_are(_context, value):
    return value if isinstance(value, bytes) else str(value).encode()


@schemathesis.hook
def before_load_schema(_context, document):
    """Makes members of answers that are not described a fault; clients have to bear them, and their authors do not see them."""
    schemas = document["components"]["schemas"]
    for name in ANSWERS:
        schemas[name]["additionalProperties"] = False


def ensure_topic():
    """Makes what an earlier request may have deleted."""
    session.post(f"{URL}/topics", json={"name": TOPIC}).close()
    session.post(f"{URL}/topics/{TOPIC}/publish", data=b"a message").close()
    session.post(f"{URL}/topics/{TOPIC}/groups/{GROUP}/fetch", json={"max": 2, "from_offset": 0}).close()


@schemathesis.hook
def before_call(_context, case, _kwargs):
    """Leads valid requests to a topic that is there, and shortens waits."""
    if is_valid(case):
        # Only then: a body that is set is judged anew, and one of bytes would not pass for what the description has as text.
        if isinstance(case.body, dict):
            case.body = as_integers(case.body)
        parameters = case.path_parameters
        # Some go elsewhere, always the same ones. Stateful runs make their own topics, and look for what they deleted.
        is_led = case.meta.phase.name != TestPhase.STATEFUL and zlib.crc32(str(parameters).encode()) % 4
        if is_led and parameters and "name" in parameters:
            parameters.update({name: {"name": TOPIC, "group": GROUP}[name] for name in parameters})
            ensure_topic()
        if case.operation.path.endswith(("/messages", "/fetch")):
            for place in (case.query, case.body):
                if isinstance(place, dict) and int(place.get("wait_ms") or 0) > WAIT_MS_MAX:
                    place["wait_ms"] = WAIT_MS_MAX


def is_valid(case):
    """Whether the request is meant to be one that the description allows."""
    return case.meta is not None and case.meta.generation.mode.is_positive


def as_integers(value):
    """Writes 7.0 as 7: for JSON Schema they are the same, and the broker wants whole numbers written as such."""
    if isinstance(value, dict):
        return {name: as_integers(member) for name, member in value.items()}
    if isinstance(value, list):
        return [as_integers(element) for element in value]
    return int(value) if isinstance(value, float) and value.is_integer() and abs(value) < 2**64 else value


def is_beyond_the_description(case, code):
    """Whether a request that looks valid may be refused with 400 all the same, for what JSON Schema cannot say."""
    body = case.body if isinstance(case.body, dict) else {}
    parameters = case.path_parameters or {}
    name, group = parameters.get("name", body.get("name")), parameters.get("group")
    dead_letter = (body.get("dead_letter") or {}).get("topic")
    if any(len(str(text).encode()) > 255 for text in (name, group, dead_letter)):
        return code in ("invalid_name", "invalid_config")
    if dead_letter is not None and (dead_letter == name or not body["dead_letter"].get("max_deliver")):
        return code == "invalid_config"
    if case.method == "PATCH" and "max_deliver" in (body.get("dead_letter") or {}):
        # It may take the bound away from a topic that has dead letters.
        return code == "invalid_config"
    if body.get("storage") == "wal" and os.environ["STORAGE_MODE"] == "memory":
        return code == "invalid_config"
    values = (body.get("headers") or {}).values()
    if sum(len(value) if isinstance(value, list) else 1 for value in values) > 64:
        return code in ("invalid_request", "invalid_body")
    if len(str(body.get("id")).encode()) > 1024:
        return code == "invalid_request"
    headers = {name.lower(): value for name, value in (case.headers or {}).items()}
    if "idempotency-key" in headers:
        # Batches take none, JSON takes none but its own, and spaces at the ends are no part of a header.
        key = headers["idempotency-key"]
        return code == "invalid_request" and (case.media_type in BATCHES or "id" in body or not key.strip())
    return False


def is_of_another_partition(case, answer):
    """Whether a request is refused for a partition that the topic does not have, for none when it has several, or for ids of other messages."""
    places = ("/messages", "/fetch", "/ack", "/nack", "/seek", "/publish", "/sse", "/ws")
    reasons = ("partition", "earlier life")
    is_told = any(reason in answer.get("message", "") for reason in reasons)
    return case.operation.path.endswith(places) and answer.get("code") == "invalid_request" and is_told


statuses = collections.Counter()


@schemathesis.hook
def after_call(_context, case, response):
    """Counts what each operation answered, so that one which never succeeded does not pass for tested."""
    statuses[case.operation.label, response.status_code] += 1


@atexit.register
def tell_statuses():
    with open(os.environ["RINGMAIN_STATUSES"], "w", encoding="utf-8") as file:
        json.dump([[label, status, count] for (label, status), count in statuses.items()], file)


@schemathesis.check
def refusals_are_those_that_are_described(_context, response, case):
    """A fault of the broker is never an answer, and what the description allows is done."""
    status = response.status_code
    if status < 400:
        return
    answer = response.json()
    code = answer.get("code")
    assert status < 500 or (status, code) in UNAVAILABLE or (status == 501 and code == "unknown_method"), answer
    if status == 400 and is_valid(case):
        is_borne = is_beyond_the_description(case, code) or is_of_another_partition(case, answer)
        assert is_borne, f"a valid request was refused: {answer}"

"""Reads the log that NCCL writes with `NCCL_DEBUG=INFO`; more with `NCCL_DEBUG_SUBSYS=INIT,GRAPH,ENV,TUNING,NET,COLL`.

Versions 2.4 to 2.30 were looked up in NCCL's sources; `docs/nccl-log.md` says what is read and what is not.
"""

from __future__ import annotations

import re
from collections.abc import Callable

import msgspec

from railwright.errors import UsageError
from railwright.results.readers import nccl_log_graph, nccl_log_messages
from railwright.results.readers.nccl_log_drafts import Drafts
from railwright.results.readers.nccl_log_lines import Message, split
from railwright.results.readers.nccl_log_model import (
    Choice,
    GdrCheck,
    LoggedWarning,
    NcclLog,
    Network,
    Nic,
    Setting,
    System,
    Version,
)

MAX_FACTS = 200_000
MAX_EXCERPTS = 20_000
_MAX_EXCERPT = 300
_SECRET = re.compile(r"NCCL_COMM_ID|NCCL_HOSTID")
_PROVIDER = re.compile(r"NET/OFI Selected [Pp]rovider is ([^(,]{1,60})(?:.{0,80}\(found (\d{1,4}) nics\))?")
_IN_USE = re.compile(r"Using network (.{1,60})")
_HEAD = re.compile(r"NVLS Head +\d{1,4}:((?: +\d{1,7}){1,64})")
_PXN = re.compile(r"Connected all rings, use ring PXN (\d) GDR \d")
_DRIVER = re.compile(r"cudaDriverVersion (\d{4,6})$")
_OPERATION = re.compile(r"(?:\w{1,30}: )?\d{1,19} Bytes -> Algo ")


def recognises(text: str) -> bool:
    """Whether the text has at least one line that NCCL wrote."""
    return "NCCL INFO " in text or "NCCL WARN " in text


def read(text: str) -> NcclLog:
    """What the log says. Raises UsageError when no NCCL line is found or when lines contradict each other."""
    if not recognises(text):
        raise UsageError(
            f"no NCCL INFO line in {text.count(chr(10)) + 1} lines",
            hint="run with NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,GRAPH,ENV,TUNING,NET,COLL and give its output",
        )
    reader = _Reader()
    count = 0
    for message in split(text):
        count += 1
        reader.take(message)
    return reader.finish(lines=text.count("\n") + 1, messages=count)


class _Reader:
    """Everything read so far."""

    def __init__(self) -> None:
        self.drafts = Drafts()
        self.versions: list[Version] = []
        self.driver: int | None = None
        self.nics: dict[tuple[str, str, int], Nic] = {}
        self.networks: dict[tuple[str, str, str], Network] = {}
        self.gdr: dict[tuple[str, str, str, bool], GdrCheck] = {}
        self.settings: dict[tuple[str, int, str, str], Setting] = {}
        self.systems: dict[str, nccl_log_graph.SystemTable] = {}
        self.tuning = nccl_log_graph.TuningTable()
        self.choices: dict[tuple[str, int, str, str, int | None], Choice] = {}
        self.warnings: list[LoggedWarning] = []
        self.excerpts: dict[int, str] = {}
        self._kinds: dict[str, Callable[[Message], bool]] = {
            "NCCL": self._version,
            "cudaDriverVersion": self._driver,
            "Using": self._network_in_use,
            "Failed": self._failed,
            "===": self._system,
            "CPU": self._system_line,
            "+": self._system_line,
            "GPU": self._gpu,
            "NET": self._net,
            "Pattern": self._search,
            "Channel": self._channel,
            "Ring": self._channel,
            "Trees": self._trees,
            "NVLS": self._nvls,
            "Connected": self._connected,
            "Algorithm": self.tuning.take,
            "Latency": self.tuning.take,
        }

    def take(self, message: Message) -> None:
        """One message; what is not known is left out."""
        text = message.text.lstrip()
        plain = message if text == message.text else message._replace(text=text)
        if message.warn:
            if len(self.warnings) < MAX_FACTS:
                self.warnings.append(LoggedWarning(host=message.host, says=text, line=message.line))
            return
        word = text.split(" ", 1)[0].split("/", 1)[0]
        kind = self._kinds.get(word)
        # Only in the tree of the machine does the indent mean something.
        if (kind or self._other)(message if word == "+" else plain):
            self._keep(message)

    def finish(self, *, lines: int, messages: int) -> NcclLog:
        """The log. Raises UsageError when no line told anything."""
        communicators = self.drafts.finish()
        facts = (
            self.versions,
            self.nics,
            self.networks,
            self.gdr,
            self.settings,
            self.systems,
            self.choices,
            self.warnings,
        )
        if not communicators and not any(facts) and not self.tuning.estimates:
            raise UsageError(
                f"none of the {messages} NCCL messages says what NCCL saw or built",
                hint="run with NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,GRAPH,ENV,TUNING,NET,COLL and give its output",
            )
        systems: tuple[System, ...] = tuple(table.system() for table in self.systems.values())
        return NcclLog(
            lines=lines,
            messages=messages,
            communicators=communicators,
            versions=tuple(self.versions),
            driver=self.driver,
            nics=tuple(self.nics.values()),
            networks=tuple(self.networks.values()),
            gdr=tuple(self.gdr.values()),
            settings=tuple(self.settings.values()),
            systems=systems,
            tuning=tuple(self.tuning.estimates),
            choices=tuple(self.choices.values()),
            warnings=tuple(self.warnings),
            excerpts=self.excerpts,
        )

    def _keep(self, message: Message) -> None:
        if len(self.excerpts) < MAX_EXCERPTS:
            self.excerpts.setdefault(message.line, message.text.strip()[:_MAX_EXCERPT])

    def _other(self, message: Message) -> bool:
        text = message.text
        if text.startswith(("comm 0x", "nccl")):
            return self._init(message)
        if " set " in text and (found := nccl_log_messages.SETTING.match(text)):
            name, value = found.group(1), found.group(2).strip()
            if _SECRET.match(name):  # names of machines: nothing to judge, and not ours to keep
                return False
            value = value[:-1] if value.endswith(".") else value
            key = (message.host, message.pid, name, value)
            if len(self.settings) < MAX_FACTS:
                self.settings.setdefault(
                    key, Setting(host=message.host, pid=message.pid, name=name, value=value, line=message.line)
                )
            return True
        if " Bytes -> Algo " in text and _OPERATION.match(text):
            return self._choice(message)
        if " coll channels" in text and (counts := nccl_log_messages.counts(text, message.line)):
            draft = self.drafts.of(message)
            draft.counts = draft.counts or counts
            return True
        return "|" in text and self.tuning.take(message)

    def _init(self, message: Message) -> bool:
        if found := nccl_log_messages.init(message.text):
            self.drafts.init(found, message)
            return True
        if nodes := nccl_log_messages.nodes(message.text):
            draft = self.drafts.of(message)
            draft.set_size(nodes[1], message.line)
            draft.place(nodes[0], message)
            draft.nodes = nodes[2]
            return True
        return False

    def _version(self, message: Message) -> bool:
        found = nccl_log_messages.VERSION.match(message.text)
        if found is None:
            return self._other(message)
        version = Version(nccl=found.group(1), cuda=found.group(2) or "", host=message.host, line=message.line)
        if all((one.nccl, one.cuda, one.host) != (version.nccl, version.cuda, version.host) for one in self.versions):
            self.versions.append(version)
        return True

    def _driver(self, message: Message) -> bool:
        found = _DRIVER.match(message.text)
        self.driver = self.driver or (int(found.group(1)) if found else None)
        return found is not None

    def _network(self, network: Network) -> bool:
        if len(self.networks) < MAX_FACTS:
            self.networks.setdefault((network.host, network.name, network.state), network)
        return True

    def _network_in_use(self, message: Message) -> bool:
        found = _IN_USE.match(message.text)
        return found is not None and self._network(
            Network(host=message.host, name=found.group(1).strip(), state="used", line=message.line)
        )

    def _failed(self, message: Message) -> bool:
        if message.text.startswith("Failed to initialize NET plugin "):
            name, says = message.text.rpartition(" ")[2], message.text
        elif message.text.startswith("Failed to open libibverbs"):
            name, says = "IB", message.text
        else:
            return False
        return self._network(
            Network(host=message.host, name=name[:60], state="failed", says=says[:200], line=message.line)
        )

    def _net(self, message: Message) -> bool:
        text = message.text
        if "GPU Direct RDMA" in text:
            return self._gdr(message)
        if text.startswith(("NET/IB : Using", "NET/Socket : Using")):
            found = nccl_log_messages.nics(text, message.host, message.line)
            for nic in found[:256] if len(self.nics) < MAX_FACTS else ():
                self.nics.setdefault((nic.host, nic.network, nic.index), nic)
            return bool(found)
        if text.startswith("NET/IB : No device found"):
            return self._network(
                Network(host=message.host, name="IB", state="absent", says=text[:200], line=message.line)
            )
        if provider := _PROVIDER.match(text):
            nics = int(provider.group(2)) if provider.group(2) else None
            return self._network(
                Network(host=message.host, name="OFI", state="plugin", says=provider.group(1).strip(), nics=nics,
                        line=message.line)
            )  # fmt: skip
        return self._system_line(message)

    def _gpu(self, message: Message) -> bool:
        return self._gdr(message) if message.text.startswith("GPU Direct") else self._system_line(message)

    def _gdr(self, message: Message) -> bool:
        found = nccl_log_messages.gdr(message.text, message.host, message.line)
        if found is not None and len(self.gdr) < MAX_FACTS:
            self.gdr.setdefault((found.host, found.nic, found.gpu, found.enabled), found)
        return found is not None

    def _system(self, message: Message) -> bool:
        table = nccl_log_graph.begin(message)
        if table is not None and message.host not in self.systems and len(self.systems) < MAX_FACTS:
            self.systems[message.host] = table
        return table is not None

    def _system_line(self, message: Message) -> bool:
        table = self.systems.get(message.host)
        return table is not None and table.take(message)

    def _search(self, message: Message) -> bool:
        found = nccl_log_messages.search(message.text, message.host, message.line)
        if found is not None:
            self.drafts.of(message).searches.append(found)
        return found is not None

    def _channel(self, message: Message) -> bool:
        if " via " in message.text:
            found = nccl_log_messages.connection(message.text, message.line)
            if found is None:
                return False
            rank = found.target if found.direction == "receive" else found.source
            if draft := self.drafts.of_rank(message, rank):
                draft.connections.append(found)
                draft.place(rank, message)
            return draft is not None
        if step := nccl_log_messages.step(message.text):
            if draft := self.drafts.of_rank(message, step.rank):
                draft.steps.setdefault((step.channel, step.rank), (step, message.line))
                draft.place(step.rank, message)
            return draft is not None
        order = nccl_log_messages.order(message.text)
        if order is not None:
            self.drafts.order(order, message)
        return order is not None

    def _trees(self, message: Message) -> bool:
        found = nccl_log_messages.trees(message.text, message.line)
        for node in found:
            if draft := self.drafts.of_rank(message, node.rank):
                draft.trees.setdefault((node.channel, node.rank), node)
                draft.place(node.rank, message)
        return bool(found)

    def _nvls(self, message: Message) -> bool:
        found = _HEAD.match(message.text)
        if found is not None:
            self.drafts.of(message).heads.append(tuple(int(rank) for rank in found.group(1).split()))
        return found is not None

    def _connected(self, message: Message) -> bool:
        found = _PXN.match(message.text)
        if found is not None:
            self.drafts.of(message).pxn = found.group(1) == "1"
        return found is not None

    def _choice(self, message: Message) -> bool:
        found = nccl_log_messages.choice(message.text, message.line)
        if found is None:
            return False
        key = (found.operation, found.size_bytes, found.algorithm, found.protocol, found.channels)
        known = self.choices.get(key)
        if known is not None:
            self.choices[key] = msgspec.structs.replace(known, times=known.times + 1)
        elif len(self.choices) < MAX_FACTS:
            self.choices[key] = found
        return True

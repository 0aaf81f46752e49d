"""Everything that ``btfl serve`` can be told, each written once: the command line reads its options from here."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal

from btfl.errors import InputError
from btfl.knobs import Settings, knob
from btfl.monitor import MonitorSettings

LOOPBACK = ("127.0.0.1", "::1", "localhost")


@dataclass(frozen=True)
class ServeSettings(Settings):
    """How a server runs."""

    title: ClassVar[str] = "serve"

    host: str = knob("127.0.0.1", "Address to listen on; any but loopback needs tokens.")
    port: int = knob(8000, "Port to listen on.", least=0, most=65535)
    workers: int = knob(1, "Processes that answer; any of them serves any stream.", least=1, most=64)
    database: str = knob("sqlite:///btfl-serve.db", "Where memories are kept: sqlite:///FILE or postgresql://...")
    durability: Literal["normal", "full"] = knob(
        "normal", "SQLite alone: full also survives a power cut, at one disk flush a request."
    )
    method: str = knob("coherent", "Method that answers; `btfl methods` lists them.")
    recipe: str = knob("fedavg", "Which training of a run.")
    extractor: str = knob("", "ONNX file of the extractor, so that images can be sent. A zoo entry has its own.")
    auth: bool = knob(True, "Ask for tokens. Off only on loopback.")
    tls_cert: str = knob("", "Certificate chain (PEM); with it the server speaks HTTPS.")
    tls_key: str = knob("", "Private key of the certificate (PEM).")
    largest_body: int = knob(8 << 20, "Bytes of a request, at most.", least=1024, most=1 << 30)
    most_samples: int = knob(1024, "Samples of a request, at most.", least=1, most=1_000_000)
    most_streams: int = knob(100_000, "Streams of a tenant, at most.", least=1, most=100_000_000)
    requests_per_second: float = knob(0.0, "Of a token and worker, at most; 0: no limit.", least=0, most=1e6)
    burst: int = knob(100, "Requests of a token beyond that rate, at once.", least=1, most=1_000_000)
    history: int = knob(
        256, "Requests of a stream that are remembered: for the page, and so that a retried one counts once.",
        least=8, most=100_000,
    )  # fmt: skip
    rate: float = knob(0.1, "False alarms promised for 1,000 samples of the client's own.", least=0.03, most=10)
    webhook: str = knob("", "URL that every alarm is posted to, as JSON.")
    label_models: bool = knob(False, "Name the model in Prometheus' metrics: one series for each client.")
    log_requests: bool = knob(False, "Log every request, not only errors and alarms.")
    stop_within: int = knob(10, "Seconds that open requests have to end when the server stops.", least=1, most=600)

    def check(self) -> None:
        """Refuse settings that do not go together."""
        if bool(self.tls_cert) != bool(self.tls_key):
            raise InputError("HTTPS needs both --tls-cert and --tls-key")
        for path in filter(None, (self.tls_cert, self.tls_key, self.extractor)):
            if not Path(path).is_file():
                raise InputError(f"{path} does not exist, or is not a file")
        if not self.auth and not self.is_loopback:
            raise InputError(
                f"without tokens a server listens on loopback alone, not on {self.host}: leave out --no-auth"
            )
        if self.webhook and not self.webhook.startswith(("http://", "https://")):
            raise InputError(f"a webhook is an http or https URL, not {self.webhook!r}")
        if not self.database.startswith(("sqlite:///", "postgresql://", "postgresql+psycopg://")):
            raise InputError(
                f"a database is sqlite:///FILE or postgresql://..., not {self.database.partition(':')[0]!r}"
            )

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine can reach the server."""
        return self.host in LOOPBACK

    @property
    def monitor(self) -> MonitorSettings:
        """How alarms are raised."""
        return MonitorSettings(rate=self.rate)

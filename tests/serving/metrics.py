"""What a server has counted, read as Prometheus reads it."""

from prometheus_client.parser import text_string_to_metric_families

from tests.serving.server import Server


class Counted:
    """The samples of a page of metrics."""

    def __init__(self, page: str) -> None:
        self.samples = [s for family in text_string_to_metric_families(page) for s in family.samples]

    def __call__(self, name: str, **labels: str) -> float:
        """The sum of the samples of this name that have these labels, among others."""
        return sum(s.value for s in self.samples if s.name == f"typedrag_{name}" and labels.items() <= s.labels.items())


def counted(server: Server) -> Counted:
    reply = server.client.get("/metrics")
    assert reply.status_code == 200 and reply.headers["Content-Type"].startswith("text/plain")
    return Counted(reply.text)

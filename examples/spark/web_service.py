"""A web service that awaits Spark queries: `python examples/spark/web_service.py`.

`/top?limit=3` is a Spark query over a topic; it is cancelled if it takes longer than two minutes.
`/health` is answered immediately, even while Spark works. The program also runs its own clients.
"""

from __future__ import annotations

import asyncio
import json
import time
from urllib.parse import parse_qs, urlsplit

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

import aiokq
from aiokq.spark import bridge


class TopService:
    """Answers over HTTP which keys of a topic have the most records."""

    def __init__(self, spark: SparkSession, bootstrap_servers: str, topic: str) -> None:
        self.spark = spark
        self.options = {"kafka.bootstrap.servers": bootstrap_servers, "subscribe": topic}

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            status, answer = b"200 OK", dict[str, object](status="up")
            target = urlsplit(head.split(b" ", 2)[1].decode("latin-1"))
            if target.path != "/health":
                status, answer = await self.top(parse_qs(target.query))
            payload = json.dumps(answer).encode()
            writer.write(b"HTTP/1.1 %s\r\nContent-Length: %d\r\n\r\n" % (status, len(payload)))
            writer.write(payload)
            await writer.drain()
        finally:
            writer.close()

    async def top(self, query: dict[str, list[str]]) -> tuple[bytes, dict[str, object]]:
        limit = int(query.get("limit", ["10"])[0])
        try:
            async with asyncio.timeout(120):  # also cancels the Spark job
                # `load` and `schema` call brokers, which blocks: a thread makes these calls.
                frame = await bridge.call(self.spark, self.frame, limit)
                rows = await bridge.collect(frame)
        except TimeoutError:
            return b"504 Gateway Timeout", {"error": "Spark took too long"}
        except PySparkException as error:
            return b"502 Bad Gateway", {"error": str(error)}
        return b"200 OK", {row["name"]: row["count"] for row in rows}

    def frame(self, limit: int) -> DataFrame:
        records = self.spark.read.format("aiokq").options(**self.options, columns="key").load()
        counts = records.groupBy(records.key.cast("string").alias("name")).count()
        return counts.orderBy(counts["count"].desc(), "name").limit(limit)


async def get(port: int, target: bytes) -> tuple[float, bytes]:
    began = time.perf_counter()
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"GET %s HTTP/1.1\r\n\r\n" % target)
    answer = await reader.read()
    writer.close()
    return time.perf_counter() - began, answer.partition(b"\r\n\r\n")[2]


async def serve(spark: SparkSession) -> None:
    async with aiokq.EmbeddedCluster() as kafka:
        async with aiokq.Producer(kafka.bootstrap_servers) as producer:
            for number in range(600):
                producer.send_nowait("orders", b"%d" % number, b"customer %d" % (number % 6 // 2))
        service = TopService(spark, kafka.bootstrap_servers, "orders")
        server = await asyncio.start_server(service.handle, "127.0.0.1", 0)
        async with server:
            port = server.sockets[0].getsockname()[1]
            asking = asyncio.gather(*(get(port, b"/top?limit=2") for _ in range(2)))
            pings = []
            while not asking.done():
                pings.append((await get(port, b"/health"))[0])
                await asyncio.sleep(0.02)
            answers = await asking
    print(answers[0][1].decode())
    print(f"Spark took {max(seconds for seconds, _ in answers):.1f} s;", end=" ")
    print(f"{len(pings)} others were answered meanwhile, in {max(pings):.3f} s at most")


def main() -> None:
    spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    session = spark.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    try:
        asyncio.run(serve(session))
    finally:
        session.stop()


if __name__ == "__main__":
    main()

"""The HTTP side of replies: how large one may be, how it may be compressed, and whether it broke off.

How we differ from the client's defaults:
1. A reply ends at LIMIT, counted after decompression and while it comes in: an endless one, or a small file that
   unpacks to gigabytes, costs no more memory than that.
2. A reply that broke off has the status that it began with, which decides whether it may be charged.
3. A redirect is not followed: the prompt would go to an address that nobody named.
"""

import zlib
from collections.abc import AsyncIterator, Iterator

import httpx2

LIMIT = 32 * 2**20  # bytes of a reply: 65,536 tokens of text with the log-probability of each take 8 MB
HEADERS = {"Accept-Encoding": "gzip, deflate"}  # what `_unpacked` reads
WINDOWS = {"gzip": 31, "x-gzip": 31, "deflate": 47}  # zlib's: gzip alone, or found out


class BrokenReply(httpx2.RemoteProtocolError):
    """A reply of which only a part came or can be read, and the status that it began with."""

    def __init__(self, message: str, status: int):
        super().__init__(message)
        self.status = status


async def bound(response: httpx2.Response) -> None:
    """Bound a response before its body is read (a hook of the client)."""
    encoding = response.headers.pop("content-encoding", "identity").strip().lower()
    assert isinstance(response.stream, httpx2.AsyncByteStream), "the client is an asynchronous one"
    response.stream = _Bounded(response.stream, encoding, response.status_code)


class _Bounded(httpx2.AsyncByteStream):
    def __init__(self, stream: httpx2.AsyncByteStream, encoding: str, status: int):
        self._stream, self._encoding, self._status = stream, encoding, status

    async def __aiter__(self) -> AsyncIterator[bytes]:
        if self._encoding not in (*WINDOWS, "identity", ""):
            raise BrokenReply(f"compressed as {self._encoding[:20]}, which was not asked for", self._status)
        window = WINDOWS.get(self._encoding)
        unpack = zlib.decompressobj(window) if window else None
        size = 0
        try:
            async for chunk in self._stream:
                for piece in _unpacked(unpack, chunk) if unpack else (chunk,):
                    size += len(piece)
                    if size > LIMIT:
                        raise BrokenReply(f"over {LIMIT / 2**20:g} MiB", self._status)
                    yield piece
            if unpack and not unpack.eof and size:
                raise BrokenReply(f"broken off after {size:,} bytes", self._status)
        except zlib.error as error:
            raise BrokenReply(f"no {self._encoding}: {error}", self._status) from error
        except httpx2.TransportError as error:
            if isinstance(error, BrokenReply):
                raise
            raise BrokenReply(f"broken off after {size:,} bytes: {error}", self._status) from error

    async def aclose(self) -> None:
        await self._stream.aclose()


def _unpacked(unpack: "zlib._Decompress", chunk: bytes) -> Iterator[bytes]:
    """The pieces that a chunk unpacks to, none of them large."""
    while chunk and not unpack.eof:
        yield unpack.decompress(chunk, 2**16)
        chunk = unpack.unconsumed_tail

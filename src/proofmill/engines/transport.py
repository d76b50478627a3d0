"""The HTTP side of replies: maximum size, compression, and incomplete bodies.

Differences from the client's defaults:
1. A reply fails at LIMIT bytes, counted after decompression and while it arrives. So an endless reply, or a small one
   that unpacks to gigabytes, takes no more memory than that.
2. An incomplete reply keeps the status that it began with, which decides whether it may be charged.
3. Redirects are not followed: the prompt would go to an address that the user did not configure.
"""

import zlib
from collections.abc import AsyncIterator, Iterator

import httpx2

LIMIT = 32 * 2**20  # bytes of a reply; 65,536 tokens of text with the log-probability of each take 8 MB
HEADERS = {"Accept-Encoding": "gzip, deflate"}  # the encodings that `_unpack_chunk` reads
WINDOWS = {"gzip": 31, "x-gzip": 31, "deflate": 47}  # zlib's `wbits`: gzip only, or detected


class BrokenReply(httpx2.RemoteProtocolError):
    """An incomplete or corrupt reply, with the status that it began with."""

    def __init__(self, message: str, status: int):
        super().__init__(message)
        self.status = status


async def bound(response: httpx2.Response) -> None:
    """Limit the size of a response before its body is read (a hook of the client)."""
    encoding = response.headers.pop("content-encoding", "identity").strip().lower()
    assert isinstance(response.stream, httpx2.AsyncByteStream), "the client is asynchronous"
    response.stream = _Bounded(response.stream, encoding, response.status_code)


class _Bounded(httpx2.AsyncByteStream):
    def __init__(self, stream: httpx2.AsyncByteStream, encoding: str, status: int):
        self._stream, self._encoding, self._status = stream, encoding, status

    async def __aiter__(self) -> AsyncIterator[bytes]:
        if self._encoding not in (*WINDOWS, "identity", ""):
            raise BrokenReply(f"compressed as {self._encoding[:20]}, which was not requested", self._status)
        window = WINDOWS.get(self._encoding)
        unpack = zlib.decompressobj(window) if window else None
        size = 0
        try:
            async for chunk in self._stream:
                for piece in _unpack_chunk(unpack, chunk) if unpack else (chunk,):
                    size += len(piece)
                    if size > LIMIT:
                        raise BrokenReply(f"over {LIMIT / 2**20:g} MiB", self._status)
                    yield piece
            if unpack and not unpack.eof and size:
                raise BrokenReply(f"incomplete after {size:,} bytes", self._status)
        except zlib.error as error:
            raise BrokenReply(f"invalid {self._encoding}: {error}", self._status) from error
        except httpx2.TransportError as error:
            if isinstance(error, BrokenReply):
                raise
            raise BrokenReply(f"incomplete after {size:,} bytes: {error}", self._status) from error

    async def aclose(self) -> None:
        await self._stream.aclose()


def _unpack_chunk(unpack: "zlib._Decompress", chunk: bytes) -> Iterator[bytes]:
    """Yield the decompressed content of a chunk in pieces of at most 64 KiB."""
    while chunk and not unpack.eof:
        yield unpack.decompress(chunk, 2**16)
        chunk = unpack.unconsumed_tail

"""The head of a request, bounded while it arrives: the parser itself would keep whatever comes until it ends."""

from __future__ import annotations

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

HEAD_BYTES_MAX = 64 * 1024  # a little more than the address and headers that api.http.addresses lets through


class BoundedHeads(HttpToolsProtocol):
    """uvicorn's connection, which ends when a head is still not whole HEAD_BYTES_MAX after what came of it at first."""

    _in_head = False
    _head_bytes = 0

    def data_received(self, data: bytes) -> None:
        """Take what arrived."""
        if self._in_head:
            self._head_bytes += len(data)
        super().data_received(data)
        if self._in_head and self._head_bytes > HEAD_BYTES_MAX:
            self.send_400_response("The head of the request is too long.")

    def on_message_begin(self) -> None:
        """A head begins."""
        self._in_head, self._head_bytes = True, 0
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        """A head is whole."""
        self._in_head = False
        super().on_headers_complete()

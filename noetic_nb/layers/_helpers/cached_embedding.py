"""Cache for embeddings: an embedder that costs time or money is called only once per text.

Texts are identified by a digest and are not stored. Vectors are stored as 32-bit floats, the precision of models; the
stored values are returned, so that the first answer equals all later ones.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import hashlib
import os
import struct
import zlib
from collections.abc import Mapping, Sequence
from typing import Any, Final

from noetic_nb._core.arguments import explained
from noetic_nb.errors import NoeticError
from noetic_nb.layers._helpers.collaborators import check_whole, embed, embed_function
from noetic_nb.layers._helpers.embedding import Embedder, EmbedTexts
from noetic_nb.layers._helpers.schemas import option_error
from noetic_nb.storage import StorageAdapter
from noetic_nb.storage._adapter import JsonValue, escape_segment, get_many, write_together

PREFIX: Final = "embeddings"
# Texts per call: endpoints accept from 96 to 2 048, and answers are stored batch by batch.
BATCH_SIZE: Final = 64
_BYTES: Final = 4


class CachedEmbedder:
    """An embedder whose vectors are stored, by the digest of the text.

    Safe with several processes on one file: each can read the vectors of the others.

    Parameters
    ----------
    embedder : Embedder or callable
        Makes the vectors: a function of a list of texts, sync or async, or an object with such a method ``embed``. It
        is first called when there is a text to embed.
    storage : path or StorageAdapter
        Where vectors are stored; a path is that of an SQLite file that only its owner may read.
    name : str
        The name of the model. Vectors of two models are never mixed: use another name for another model or number of
        dimensions.
    batch_size : int
        The number of texts to embed at once.

    Raises
    ------
    NoeticConfigError
        ``INVALID_LAYER_OPTION``, or ``INVALID_STORAGE_PATH`` for a path that cannot work.
    NoeticError
        ``storage_failed`` for a file that is damaged or not a database.

    References
    ----------
    .. [1] docs/behaviour/layers.md, "Embedders".

    Examples
    --------
    >>> import asyncio
    >>> from noetic_nb.storage import InMemoryStorage
    >>> def embed(texts):
    ...     print("asked for", texts)
    ...     return [[float(len(text)), 1.0] for text in texts]
    >>> async def twice():
    ...     cached = CachedEmbedder(embed, InMemoryStorage(), name="lengths")
    ...     await cached.embed(["tea", "cup"])
    ...     return await cached.embed(["coffee", "tea"])
    >>> asyncio.run(twice())
    asked for ['tea', 'cup']
    asked for ['coffee']
    [[6.0, 1.0], [3.0, 1.0]]
    """

    @explained()
    def __init__(
        self,
        embedder: Embedder | EmbedTexts,
        storage: str | os.PathLike[str] | StorageAdapter,
        *,
        name: str,
        batch_size: int = BATCH_SIZE,
    ) -> None:
        self._embed = embed_function(embedder)
        if not isinstance(name, str) or not name.strip():
            hint = 'For example: name="text-embedding-3-small".'
            raise option_error("Vectors are stored under the name of their model.", name, hint)
        check_whole(batch_size=batch_size)
        self.name = name
        self.batch_size = batch_size
        self._file: Any = None
        if isinstance(storage, str | os.PathLike):
            from noetic_nb.storage import SQLiteStorage

            self._file = storage = SQLiteStorage(storage)
        self._storage: StorageAdapter = storage
        self._prefix = f"{PREFIX}/{escape_segment(name)}/"

    async def embed(self, texts: Sequence[str]) -> list[list[float]]:
        """Return one vector per text, new or cached.

        Raises `NoeticError` ``tool_failed`` if the embedder fails, or its vectors are not numbers or differ in size
        from the cached ones; ``storage_failed`` if a cached vector is damaged. Vectors of earlier batches stay cached.
        """
        # A test call without an event loop stops here, before anything is sent.
        await asyncio.sleep(0)
        if isinstance(texts, str):
            raise TypeError("An embedder needs a list of texts, not one text.")
        keys = {text: self._key(text) for text in texts}
        size_key = f"{self._prefix}size"
        found = await get_many(self._storage, [size_key, *keys.values()])
        size = self._size(size_key, found.pop(size_key, None))
        vectors = {key: self._read(key, value, size) for key, value in found.items()}
        missing = [text for text, key in keys.items() if key not in vectors]
        for start in range(0, len(missing), self.batch_size):
            batch = missing[start : start + self.batch_size]
            packed = {
                keys[text]: self._packed(row) for text, row in zip(batch, await embed(self._embed, batch), strict=True)
            }
            size = await self._keep(size_key, size, packed)
            vectors |= {key: list(struct.unpack(f"<{size}f", row)) for key, row in packed.items()}
        return [vectors[keys[text]] for text in texts]

    async def aclose(self) -> None:
        """Close the file; a storage object that was passed in stays open."""
        if self._file is not None:
            await self._file.aclose()

    def _key(self, text: str) -> str:
        return self._prefix + hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()

    def _packed(self, vector: Sequence[float]) -> bytes:
        try:
            return struct.pack(f"<{len(vector)}f", *vector)
        except OverflowError as exc:
            what = f"The embedder {self.name!r} made a number that 32 bits cannot hold."
            hint = "Scale its vectors, for example to length 1."
            raise NoeticError("tool_failed", what, given=max(vector, key=abs), hint=hint) from exc

    async def _keep(self, size_key: str, size: int | None, packed: Mapping[str, bytes]) -> int:
        """Store new vectors, with their size if they are the first; return the size."""
        fresh = len(next(iter(packed.values()))) // _BYTES
        values: dict[str, JsonValue] = {
            key: {"f32": base64.b64encode(row).decode(), "crc": zlib.crc32(row)} for key, row in packed.items()
        }
        if size is None:
            try:
                await write_together(self._storage, {size_key: fresh, **values}, absent=[size_key])
                return fresh
            except NoeticError as exc:
                if exc.kind != "state_conflict":
                    raise
            # Another process has just stored the first ones.
            size = self._size(size_key, await self._storage.get(size_key))
        if size != fresh:
            raise NoeticError(
                "tool_failed",
                f"The embedder {self.name!r} made vectors of {fresh} numbers, and those kept under its name have {size}.",
                hint="Use another name for another model or size, or delete the stored vectors.",
                name=self.name,
            )
        await write_together(self._storage, values)
        return fresh

    def _size(self, key: str, value: Any) -> int | None:
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise self._damaged(key, value, "it is not a number of dimensions")
        return value

    def _read(self, key: str, value: Any, size: int | None) -> list[float]:
        try:
            row = base64.b64decode(value["f32"], validate=True)
            checksum = value["crc"]
        except (KeyError, TypeError, ValueError, binascii.Error) as exc:
            raise self._damaged(key, value, f"{type(exc).__name__}: {exc}") from exc
        if size is None or len(row) != size * _BYTES or zlib.crc32(row) != checksum:
            raise self._damaged(key, value, "its size or its checksum is wrong")
        return list(struct.unpack(f"<{size}f", row))

    def _damaged(self, key: str, value: object, why: str) -> NoeticError:
        what = f"A kept vector of {self.name!r} is damaged: {why}"
        hint = f"Delete the key {key!r}, or the file: vectors can be made again."
        return NoeticError("storage_failed", what, given=value, hint=hint, key=key)

    def __repr__(self) -> str:
        return f"CachedEmbedder({self.name!r})"

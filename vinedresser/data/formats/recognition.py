"""What a file looks like, for messages about files of another kind."""

from __future__ import annotations

_KINDS = (
    (b"\x1f\x8b", "gzip"),
    (b"\x28\xb5\x2f\xfd", "Zstandard"),
    (b"BZh", "bzip2"),
    (b"\xfd7zXZ", "xz"),
    (b"PK\x03\x04", "a ZIP archive, such as npz or a checkpoint of torch.save"),
    (b"\x93NUMPY", "an npy file"),
    (b"PAR1", "Parquet"),
    (b"ARROW1", "Arrow IPC"),
    (b"\x89HDF", "HDF5"),
    (b"\x89PNG", "a PNG image"),
    (b"\xff\xd8\xff", "a JPEG image"),
    (b"\x80\x02}", "a pickle"),
    (b"\x80\x04\x95", "a pickle"),
    (b"\x80\x05\x95", "a pickle"),
    (b"<", "XML or HTML"),
    (b"{", "JSON"),
    (b"[", "JSON"),
)


def looks_like(head: bytes) -> str:
    """Return what the first 512 bytes of a file look like, "; it looks like …"; "" if unknown."""
    if head[257:262] == b"ustar":
        return "; it looks like a tar archive"
    # A header of JSON behind its length, which is below 100 MB; not a line of seven letters.
    if head[8:10] == b'{"' and not any(head[4:8]):
        return "; it looks like safetensors"
    kind = next((name for magic, name in _KINDS if head.startswith(magic)), "")
    if not kind and head and not head.translate(None, _TEXT):
        kind = "text"
    return f"; it looks like {kind}" if kind else ""


_TEXT = bytes([*range(32, 127), *b"\t\r\n"])

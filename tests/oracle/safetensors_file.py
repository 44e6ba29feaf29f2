"""The safetensors format in a page: 8 bytes of little-endian header length, a JSON header, then the tensors' bytes.

Written here instead of imported so that regenerating the references needs one package less, and so that the bytes depend only on
the values: tensors keep the order they are given in, the header is padded with spaces to a multiple of 8.
"""

import json
import struct

import numpy

DTYPES = {"F32": numpy.float32, "F64": numpy.float64, "I32": numpy.int32, "I64": numpy.int64}
NAMES = {numpy.dtype(kind): name for name, kind in DTYPES.items()}


def write(path, tensors, metadata):
    """tensors: name -> array; metadata: name -> text."""
    header = {"__metadata__": metadata}
    offset = 0
    for name, array in tensors.items():
        header[name] = {"dtype": NAMES[array.dtype], "shape": list(array.shape), "data_offsets": [offset, offset + array.nbytes]}
        offset += array.nbytes
    text = json.dumps(header, separators=(",", ":")).encode("ascii")
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)))
        file.write(text)
        for array in tensors.values():
            file.write(numpy.ascontiguousarray(array).astype(array.dtype.newbyteorder("<")).tobytes())


def read(path):
    """The inverse of write: (tensors, metadata)."""
    with open(path, "rb") as file:
        data = file.read()
    (length,) = struct.unpack_from("<Q", data)
    header = json.loads(data[8 : 8 + length])
    metadata = header.pop("__metadata__", {})
    tensors = {}
    for name, entry in header.items():
        begin, end = (8 + length + offset for offset in entry["data_offsets"])
        kind = numpy.dtype(DTYPES[entry["dtype"]]).newbyteorder("<")
        tensors[name] = numpy.frombuffer(data[begin:end], kind).reshape(entry["shape"])
    return tensors, metadata

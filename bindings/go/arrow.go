package cbt

// #include "shim.h"
import "C"

import (
	"unsafe"

	"google.golang.org/grpc/codes"
)

// ExportArrow writes a stream over what is left of the cursor to a struct ArrowArrayStream of Arrow's C
// interface: record batches of at most rows rows (0: 65,536; at most 2^20) with the columns
// byte_offset and size_bytes, both uint64 without nulls. With github.com/apache/arrow-go:
//
//	var stream cdata.CArrowArrayStream
//	err := cursor.ExportArrow(unsafe.Pointer(&stream), 0)
//	reader, err := cdata.ImportCRecordReader(&stream, nil)
//
// It consumes the cursor, whether it succeeds or fails. The importer releases the stream. The stream
// ends only when the cursor is complete; a failure is the reader's error, and every further read
// repeats it.
func (c *Cursor) ExportArrow(stream unsafe.Pointer, rows uint64) error {
	if stream == nil {
		return &Error{codes.InvalidArgument, "the stream is nil"}
	}
	handle, err := c.take()
	if err != nil {
		return err
	}
	var e *C.cbt_error
	code := C.cbt_cursor_export_arrow(handle, C.uint64_t(rows), (*C.struct_ArrowArrayStream)(stream), &e)
	return failed(code, e)
}

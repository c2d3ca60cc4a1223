package cbt

// #include "shim.h"
import "C"

import (
	"runtime"
	"unsafe"

	"google.golang.org/grpc/codes"
)

// Transforms consume their inputs, whether they succeed or fail, except for an input that is closed
// already or in which another call runs. An input that has been read from is rewound.

func (c *Cursor) transform(make func(input *C.cbt_cursor, out **C.cbt_cursor, e **C.cbt_error) C.cbt_code) (*Cursor, error) {
	input, err := c.take()
	if err != nil {
		return nil, err
	}
	var handle *C.cbt_cursor
	var e *C.cbt_error
	code := make(input, &handle, &e)
	return madeCursor(code, handle, e)
}

// Coalesce merges neighbours with at most maxGap bytes between them: fewer extents, for some bytes
// that have not changed.
func (c *Cursor) Coalesce(maxGap uint64) (*Cursor, error) {
	return c.transform(func(input *C.cbt_cursor, out **C.cbt_cursor, e **C.cbt_error) C.cbt_code {
		return C.cbt_cursor_coalesce(input, C.uint64_t(maxGap), out, e)
	})
}

// Split cuts extents longer than maxLength, a positive multiple of the granularity.
func (c *Cursor) Split(maxLength uint64) (*Cursor, error) {
	return c.transform(func(input *C.cbt_cursor, out **C.cbt_cursor, e **C.cbt_error) C.cbt_code {
		return C.cbt_cursor_split(input, C.uint64_t(maxLength), out, e)
	})
}

// AlignOutward rounds extents outward to multiples of granularity and merges those that then touch.
func (c *Cursor) AlignOutward(granularity uint64) (*Cursor, error) {
	return c.transform(func(input *C.cbt_cursor, out **C.cbt_cursor, e **C.cbt_error) C.cbt_code {
		return C.cbt_cursor_align_outward(input, C.uint64_t(granularity), out, e)
	})
}

// Clip keeps what lies in [begin, end).
func (c *Cursor) Clip(begin, end uint64) (*Cursor, error) {
	return c.transform(func(input *C.cbt_cursor, out **C.cbt_cursor, e **C.cbt_error) C.cbt_code {
		return C.cbt_cursor_clip(input, C.uint64_t(begin), C.uint64_t(end), out, e)
	})
}

// ToBlocks turns extents into blocks, each at a multiple of blockSize. The last one keeps its size
// even past the capacity.
func (c *Cursor) ToBlocks(blockSize uint64) (*Cursor, error) {
	return c.transform(func(input *C.cbt_cursor, out **C.cbt_cursor, e **C.cbt_error) C.cbt_code {
		return C.cbt_cursor_to_blocks(input, C.uint64_t(blockSize), out, e)
	})
}

// takeAll takes every input or none.
func takeAll(cursors []*Cursor) ([]*C.cbt_cursor, error) {
	locked := 0
	defer func() {
		for _, cursor := range cursors[:locked] {
			cursor.mutex.Unlock()
		}
	}()
	for _, cursor := range cursors {
		if err := cursor.lock(); err != nil {
			return nil, err
		}
		locked++
	}
	handles := make([]*C.cbt_cursor, len(cursors))
	for i, cursor := range cursors {
		handles[i], cursor.handle = cursor.handle, nil
		cursor.cleanup.Stop()
	}
	return handles, nil
}

// Union is what lies in any of the cursors, which have one capacity.
func Union(cursors ...*Cursor) (*Cursor, error) {
	if len(cursors) == 0 {
		return nil, &Error{codes.InvalidArgument, "a union needs a cursor"}
	}
	handles, err := takeAll(cursors)
	if err != nil {
		return nil, err
	}
	var handle *C.cbt_cursor
	var e *C.cbt_error
	code := C.cbt_cursor_union(unsafe.SliceData(handles), C.uint64_t(len(handles)), &handle, &e)
	runtime.KeepAlive(handles)
	return madeCursor(code, handle, e)
}

// Intersect is what lies in both cursors.
func Intersect(a, b *Cursor) (*Cursor, error) {
	handles, err := takeAll([]*Cursor{a, b})
	if err != nil {
		return nil, err
	}
	var handle *C.cbt_cursor
	var e *C.cbt_error
	code := C.cbt_cursor_intersect(handles[0], handles[1], &handle, &e)
	return madeCursor(code, handle, e)
}

// Subtract is what lies in a and not in b, which must be exact, not rounded outward: what it reports
// is removed.
func Subtract(a, b *Cursor) (*Cursor, error) {
	handles, err := takeAll([]*Cursor{a, b})
	if err != nil {
		return nil, err
	}
	var handle *C.cbt_cursor
	var e *C.cbt_error
	code := C.cbt_cursor_subtract(handles[0], handles[1], &handle, &e)
	return madeCursor(code, handle, e)
}

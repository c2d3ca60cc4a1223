package cbt

// #include "shim.h"
import "C"

import (
	"context"
	"io"
	"log/slog"
	"runtime/cgo"
	"runtime/debug"
	"unsafe"

	"google.golang.org/grpc/codes"
)

// cbtGoRelease drops what a handle of Go keeps, from any thread.
//
//export cbtGoRelease
func cbtGoRelease(handle C.uintptr_t) {
	defer func() {
		if value := recover(); value != nil {
			slog.Error("cbt: panic while a source is closed", "value", value, "stack", string(debug.Stack()))
		}
	}()
	kept := cgo.Handle(handle)
	value := kept.Value()
	kept.Delete()
	switch value := value.(type) {
	case func():
		value()
	case io.Closer:
		if err := value.Close(); err != nil {
			slog.Error("cbt: a source can't be closed", "error", err)
		}
	}
}

//export cbtGoSeek
func cbtGoSeek(handle C.uintptr_t, offset C.uint64_t, e **C.cbt_error) (code C.cbt_code) {
	defer recovered("Source.Seek", e, &code)
	if err := cgo.Handle(handle).Value().(Source).Seek(uint64(offset)); err != nil {
		return giveError(err, e)
	}
	return C.CBT_OK
}

//export cbtGoNext
func cbtGoNext(handle C.uintptr_t, offsets, lengths *C.uint64_t, room C.uint64_t, count, covered *C.uint64_t, e **C.cbt_error) (code C.cbt_code) {
	defer recovered("Source.Next", e, &code)
	source := cgo.Handle(handle).Value().(Source)
	written, reached, err := source.Next(unsafe.Slice((*uint64)(offsets), room), unsafe.Slice((*uint64)(lengths), room))
	if err != nil {
		return giveError(err, e)
	}
	if written < 0 || written > int(room) {
		return giveError(&Error{codes.Internal, "Source.Next returned a number of extents that it had no room for"}, e)
	}
	*count, *covered = C.uint64_t(written), C.uint64_t(reached)
	return C.CBT_OK
}

//export cbtGoOpen
func cbtGoOpen(handle, running C.uintptr_t, request *C.cbt_request, answer *C.cbt_answer, e **C.cbt_error) (code C.cbt_code) {
	defer recovered("Provider.Open", e, &code)
	provider := cgo.Handle(handle).Value().(Provider)
	ctx := cgo.Handle(running).Value().(context.Context)
	if err := openSource(ctx, provider, request, answer); err != nil {
		return giveError(err, e)
	}
	return C.CBT_OK
}

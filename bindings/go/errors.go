package cbt

// #include "shim.h"
import "C"

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"unsafe"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Error is what calls of the library fail with. It is a status of gRPC, so that a handler can
// return it as it is.
type Error struct {
	Code    codes.Code
	Message string
}

// Errorf makes an error for a Provider or a Source to return: the client of a stream sees its code
// and its message.
func Errorf(code codes.Code, format string, arguments ...any) error {
	return &Error{code, fmt.Sprintf(format, arguments...)}
}

func (e *Error) Error() string { return "cbt: " + e.Code.String() + ": " + e.Message }

// GRPCStatus is used by the package status of gRPC.
func (e *Error) GRPCStatus() *status.Status { return status.New(e.Code, e.Message) }

// Is compares with the errors of context: Canceled and DeadlineExceeded are both.
func (e *Error) Is(target error) bool {
	return target == context.Canceled && e.Code == codes.Canceled ||
		target == context.DeadlineExceeded && e.Code == codes.DeadlineExceeded
}

// failed turns the outcome of a call into an error, and frees the library's.
func failed(code C.cbt_code, e *C.cbt_error) error {
	if code == C.CBT_OK {
		return nil
	}
	text := C.GoString(C.cbt_error_message_borrowed(e))
	C.cbt_error_free(e)
	return &Error{codes.Code(code), text}
}

func refused(what string) error {
	return &Error{codes.FailedPrecondition, what}
}

// statusOf is the code and the message of any error.
func statusOf(err error) (codes.Code, string) {
	var ours *Error
	if errors.As(err, &ours) {
		return ours.Code, ours.Message
	}
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return status.FromContextError(err).Code(), err.Error()
	}
	its := status.Convert(err)
	return its.Code(), its.Message()
}

// contextError is the context's, or nil.
func contextError(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return &Error{status.FromContextError(err).Code(), context.Cause(ctx).Error()}
	}
	return nil
}

// giveError hands an error to C; its code is never OK.
func giveError(err error, out **C.cbt_error) C.cbt_code {
	code, text := statusOf(err)
	e := C.cbt_error_new(C.cbt_code(code), (*C.char)(unsafe.Pointer(unsafe.StringData(text))), C.uint64_t(len(text)))
	*out = e
	return C.cbt_error_code(e)
}

// recovered is deferred by functions that C calls: an unwinding stack must not reach C.
func recovered(where string, out **C.cbt_error, code *C.cbt_code) {
	value := recover()
	if value == nil {
		return
	}
	slog.Error("cbt: panic in "+where, "value", value, "stack", string(debug.Stack()))
	*code = giveError(&Error{codes.Internal, where + " panicked"}, out)
}

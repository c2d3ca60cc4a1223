// Package cbt is the Go interface of libcbt, a changed-block-tracking engine: cursors over changed
// (or allocated) extents, change maps and chains, and csi.v1.SnapshotMetadata as a service of a
// grpc.Server.
//
// It needs cgo and libcbt.so.1, which pkg-config finds as cbt-c; with the build tag cbt_static the
// library is linked into the program (cbt-c-static). A client that needs neither is in the package
// client.
//
// Rules that hold for the whole package:
//
//   - Offsets, lengths, capacities and sizes are bytes.
//   - Errors of the library are *Error, which has one of gRPC's codes.
//   - An answer is complete when a loop over it ended without an error, and for no other reason.
//   - A value with a Close method belongs to the caller, who closes it. What was not closed when it
//     became garbage is reported (SetLeakHandler) and stays allocated. A call on a closed value, and
//     one beside another call that does not allow that, fails with FailedPrecondition.
//   - A panic in a Provider or a Source does not reach C: it is logged with its stack (log/slog), and
//     the call fails with Internal. runtime.Goexit in them ends the process.
package cbt

// #include "shim.h"
import "C"

import (
	"fmt"
	"os"
	"runtime"
	"sync/atomic"
)

// Version is that of the loaded library.
func Version() string { return C.GoString(C.cbt_version_string()) }

// SIMDLevel is the instruction set that the library uses: "scalar", "sse42", "avx2", "avx512" or
// "neon". The environment variable CBT_SIMD forces one.
func SIMDLevel() string { return C.GoString(C.cbt_simd_level()) }

var leakHandler atomic.Pointer[func(what string)]

// SetLeakHandler sets what is called, from any goroutine, with the kind of a value that became
// garbage without having been closed. nil restores the default, a line on standard error.
func SetLeakHandler(handler func(what string)) {
	if handler == nil {
		leakHandler.Store(nil)
		return
	}
	leakHandler.Store(&handler)
}

func reportLeak(what string) {
	if handler := leakHandler.Load(); handler != nil {
		(*handler)(what)
		return
	}
	fmt.Fprintf(os.Stderr, "cbt: a %s was not closed, its memory is lost\n", what)
}

// watch reports the value as a leak if it becomes garbage before the cleanup is stopped.
func watch[T any](value *T, what string) runtime.Cleanup {
	return runtime.AddCleanup(value, reportLeak, what)
}

package cbt

// #include <stdlib.h>
// #include "shim.h"
import "C"

import (
	"runtime"
	"strings"
	"sync"
	"unsafe"

	"google.golang.org/grpc/metadata"
)

// CheckerOptions are those of the request whose stream is checked.
type CheckerOptions struct {
	StartingOffset uint64
	MaxResults     uint32 // 0: no limit
	// Finish fails unless the server proved that nothing is missing.
	RequireProof bool
}

// Tuples are those of a message. The slices belong to the checker and change with its next call.
type Tuples struct {
	Offsets []uint64
	Lengths []uint64
	// The size of the volume.
	Capacity uint64
	// All tuples of the stream have one size (FIXED_LENGTH).
	Fixed bool
}

// Proof is what the server's proof of completeness says.
type Proof int32

const (
	ProofAbsent         Proof = C.CBT_PROOF_ABSENT           // the server sends none
	ProofHolds          Proof = C.CBT_PROOF_HOLDS            // nothing is missing
	ProofHoldsForPlace  Proof = C.CBT_PROOF_HOLDS_FOR_PLACE  // the same, of data that may have changed between two calls
	ProofHoldsFromRelay Proof = C.CBT_PROOF_HOLDS_FROM_RELAY // the same, but it does not reach back to the source
)

// Checker decodes the messages of one stream, for clients that have a gRPC library of their own, and
// checks them against the rules that a receiver may rely on. The package client does all of it.
//
// Calls on a checker must not overlap; Close waits for one that runs.
type Checker struct {
	mutex   sync.Mutex
	handle  *C.cbt_checker
	tuples  C.cbt_tuples
	offsets []uint64
	lengths []uint64
	cleanup runtime.Cleanup
}

// NewChecker makes a checker for one stream.
func NewChecker(options CheckerOptions) (*Checker, error) {
	o := C.cbt_checker_options{struct_size: C.sizeof_cbt_checker_options,
		starting_offset: C.uint64_t(options.StartingOffset), max_results: C.uint32_t(options.MaxResults)}
	if options.RequireProof {
		o.require_proof = 1
	}
	var handle *C.cbt_checker
	var e *C.cbt_error
	code := C.cbt_checker_new(&o, &handle, &e)
	if err := failed(code, e); err != nil {
		return nil, err
	}
	c := &Checker{handle: handle}
	c.cleanup = watch(c, "Checker")
	return c, nil
}

func (c *Checker) lock() error {
	if !c.mutex.TryLock() {
		return refused("another call on the checker runs")
	}
	if c.handle == nil {
		c.mutex.Unlock()
		return refused("the checker is closed")
	}
	return nil
}

// Message decodes and checks the next message. After a failure every further call fails in the same
// way. Errors: DataLoss for malformed bytes and for a broken rule, with its place; FailedPrecondition
// after Finish.
func (c *Checker) Message(data []byte) (Tuples, error) {
	if err := c.lock(); err != nil {
		return Tuples{}, err
	}
	defer c.mutex.Unlock()
	var e *C.cbt_error
	code := C.cbt_checker_message(c.handle, unsafe.Pointer(unsafe.SliceData(data)), C.uint64_t(len(data)), &c.tuples, &e)
	if err := failed(code, e); err != nil {
		return Tuples{}, err
	}
	// A copy: nothing of Go's may outlive Close as a pointer into C's memory.
	c.offsets = append(c.offsets[:0], unsafe.Slice((*uint64)(c.tuples.offsets), int(c.tuples.count))...)
	c.lengths = append(c.lengths[:0], unsafe.Slice((*uint64)(c.tuples.lengths), int(c.tuples.count))...)
	return Tuples{c.offsets, c.lengths, uint64(c.tuples.capacity), c.tuples._type == C.CBT_FIXED_LENGTH}, nil
}

// Finish is the verdict of the whole stream, once the call has ended with OK, with its trailing
// metadata: the answer is complete when Finish returns without an error, and for no other reason.
// Errors: DataLoss if there was no message, if the proof differs from what was received, or if
// RequireProof is set and the server sent no proof.
func (c *Checker) Finish(trailing metadata.MD) (Proof, error) {
	count := 0
	var words []string
	for key, values := range trailing {
		for _, value := range values {
			// Binary values are none of the contract's.
			if !strings.HasSuffix(key, "-bin") {
				words = append(words, key, value)
				count++
			}
		}
	}
	t, free, err := texts(words...)
	if err != nil {
		return ProofAbsent, err
	}
	defer free()
	var entries []C.cbt_metadata
	if count > 0 {
		// In C's memory, since it points to C's memory.
		memory := C.calloc(C.size_t(count), C.sizeof_cbt_metadata)
		defer C.free(memory)
		entries = unsafe.Slice((*C.cbt_metadata)(memory), count)
		for i := range entries {
			entries[i].key, entries[i].value = t[2*i].c, t[2*i+1].c
		}
	}
	if err := c.lock(); err != nil {
		return ProofAbsent, err
	}
	defer c.mutex.Unlock()
	var proof C.int32_t
	var e *C.cbt_error
	code := C.cbt_checker_finish(c.handle, unsafe.SliceData(entries), C.uint64_t(count), &proof, &e)
	return Proof(proof), failed(code, e)
}

// Received is how much the checker has seen.
type Received struct {
	// Where to resume when the call ended early: the end of the last tuple, or the starting offset.
	ResumeOffset uint64
	Tuples       uint64
	Bytes        uint64 // that they report
}

// Received is how much it has seen so far, also after a failure.
func (c *Checker) Received() (Received, error) {
	if err := c.lock(); err != nil {
		return Received{}, err
	}
	defer c.mutex.Unlock()
	return Received{uint64(C.cbt_checker_resume_offset(c.handle)), uint64(C.cbt_checker_tuples(c.handle)),
		uint64(C.cbt_checker_reported_bytes(c.handle))}, nil
}

// Close frees the checker. It may be called again.
func (c *Checker) Close() error {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	if c.handle != nil {
		C.cbt_checker_free(c.handle)
		c.handle = nil
		c.cleanup.Stop()
	}
	return nil
}

package cbt

// #include "shim.h"
import "C"

import (
	"math"
	"runtime"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
)

// Chain is the change maps between neighbouring snapshots of a volume, in a directory, and from them
// the delta between any two. One process at a time can have a chain open for changes. Any number of
// goroutines may use one; Append, Remove and Close wait for the others.
type Chain struct {
	mutex   sync.RWMutex
	handle  *C.cbt_chain
	cleanup runtime.Cleanup
}

// Access says what a chain is opened for.
type Access int32

const (
	ReadChain   Access = C.CBT_READ
	ChangeChain Access = C.CBT_CHANGE
)

// Snapshot is one of a chain.
type Snapshot struct {
	ID       string
	Capacity uint64
	// When it was taken; the zero Time: not known.
	Taken time.Time
}

// nanoseconds is a time as the library counts it. The zero Time is not known.
func nanoseconds(taken time.Time) (C.int64_t, error) {
	if taken.IsZero() {
		return math.MinInt64, nil
	}
	if count := taken.UnixNano(); time.Unix(0, count).Equal(taken) {
		return C.int64_t(count), nil
	}
	return 0, &Error{codes.InvalidArgument, "the time " + taken.String() + " is out of range"}
}

func madeChain(code C.cbt_code, handle *C.cbt_chain, e *C.cbt_error) (*Chain, error) {
	if err := failed(code, e); err != nil {
		return nil, err
	}
	c := &Chain{handle: handle}
	c.cleanup = watch(c, "Chain")
	return c, nil
}

// CreateChain creates a chain in a directory (created if missing, but not its parents) whose first
// snapshot is first. All its maps have the granularity. Errors: AlreadyExists, InvalidArgument, those
// of files.
func CreateChain(directory, volume, first string, geometry Geometry) (*Chain, error) {
	return CreateChainAt(directory, volume, first, time.Time{}, geometry)
}

// CreateChainAt is CreateChain with the time at which first was taken; the zero Time: not known.
func CreateChainAt(directory, volume, first string, taken time.Time, geometry Geometry) (*Chain, error) {
	when, err := nanoseconds(taken)
	if err != nil {
		return nil, err
	}
	t, free, err := texts(directory, volume, first)
	if err != nil {
		return nil, err
	}
	defer free()
	g := geometry.c()
	var handle *C.cbt_chain
	var e *C.cbt_error
	code := C.cbt_chain_create_at(t[0].c, t[1].c, t[2].c, &g, when, nil, &handle, &e)
	return madeChain(code, handle, e)
}

// OpenChain opens a chain. Errors: NotFound, DataLoss for a damaged manifest, Unimplemented for a newer
// version, Unavailable if another process changes it.
func OpenChain(directory string, access Access) (*Chain, error) {
	t, free, err := texts(directory)
	if err != nil {
		return nil, err
	}
	defer free()
	var handle *C.cbt_chain
	var e *C.cbt_error
	code := C.cbt_chain_open(t[0].c, C.int32_t(access), nil, &handle, &e)
	return madeChain(code, handle, e)
}

func (c *Chain) locked() error {
	if c.handle == nil {
		return refused("the chain is closed")
	}
	return nil
}

// Close frees the chain. It may be called again.
func (c *Chain) Close() error {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	if c.handle != nil {
		C.cbt_chain_free(c.handle)
		c.handle = nil
		c.cleanup.Stop()
	}
	return nil
}

// Snapshots are those of the chain, oldest first.
func (c *Chain) Snapshots() ([]Snapshot, error) {
	c.mutex.RLock()
	defer c.mutex.RUnlock()
	if err := c.locked(); err != nil {
		return nil, err
	}
	found := make([]Snapshot, C.cbt_chain_count(c.handle))
	for i := range found {
		var id *C.char
		var capacity C.uint64_t
		var e *C.cbt_error
		code := C.cbt_chain_snapshot_borrowed(c.handle, C.uint64_t(i), &id, &capacity, &e)
		if err := failed(code, e); err != nil {
			return nil, err
		}
		found[i] = Snapshot{ID: C.GoString(id), Capacity: uint64(capacity)}
		var known C.int32_t
		var taken C.int64_t
		code = C.cbt_chain_snapshot_time(c.handle, C.uint64_t(i), &known, &taken, &e)
		if err := failed(code, e); err != nil {
			return nil, err
		}
		if known != 0 {
			found[i].Taken = time.Unix(0, int64(taken))
		}
	}
	return found, nil
}

// Append adds a snapshot: the map holds what changed since the newest one, and its names are the
// volume, the newest snapshot (base) and the new one (target). Errors: FailedPrecondition if the base
// is not the newest, AlreadyExists, InvalidArgument, those of files.
func (c *Chain) Append(changes *Map) error { return c.AppendAt(changes, time.Time{}) }

// AppendAt is Append with the time at which the new snapshot was taken; the zero Time: not known.
func (c *Chain) AppendAt(changes *Map, taken time.Time) error {
	when, err := nanoseconds(taken)
	if err != nil {
		return err
	}
	c.mutex.Lock()
	defer c.mutex.Unlock()
	if err := c.locked(); err != nil {
		return err
	}
	return changes.use(func(handle *C.cbt_map) error {
		var e *C.cbt_error
		code := C.cbt_chain_append_at(c.handle, handle, when, &e)
		return failed(code, e)
	})
}

// Remove removes a snapshot at any position but not the last one that is left.
func (c *Chain) Remove(id string) error {
	t, free, err := texts(id)
	if err != nil {
		return err
	}
	defer free()
	c.mutex.Lock()
	defer c.mutex.Unlock()
	if err := c.locked(); err != nil {
		return err
	}
	var e *C.cbt_error
	code := C.cbt_chain_remove(c.handle, t[0].c, &e)
	return failed(code, e)
}

// Delta is what changed from base to target, both in the chain, base not newer. Errors: NotFound,
// InvalidArgument, Aborted if another process has changed the chain (open it again), DataLoss from the
// cursor where a file is damaged.
func (c *Chain) Delta(base, target string) (*Cursor, error) {
	if base == "" || target == "" {
		return nil, &Error{codes.InvalidArgument, "a delta needs two snapshots"}
	}
	t, free, err := texts(base, target)
	if err != nil {
		return nil, err
	}
	defer free()
	c.mutex.RLock()
	defer c.mutex.RUnlock()
	if err := c.locked(); err != nil {
		return nil, err
	}
	var handle *C.cbt_cursor
	var e *C.cbt_error
	code := C.cbt_chain_delta(c.handle, t[0].c, t[1].c, &handle, &e)
	return madeCursor(code, handle, e)
}

// Verify reads every file and compares it with the manifest. Errors: DataLoss that names the first
// damaged or missing file.
func (c *Chain) Verify() error {
	c.mutex.RLock()
	defer c.mutex.RUnlock()
	if err := c.locked(); err != nil {
		return err
	}
	var e *C.cbt_error
	code := C.cbt_chain_verify(c.handle, &e)
	return failed(code, e)
}

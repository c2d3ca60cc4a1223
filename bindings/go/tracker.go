package cbt

// #include "shim.h"
import "C"

import (
	"runtime"
	"sync"
	"sync/atomic"
	"unsafe"

	"google.golang.org/grpc/codes"
)

// TrackerOptions are those of CreateTracker and RecoverTracker.
type TrackerOptions struct {
	Geometry Geometry
	// The volume, and the snapshot at which the first epoch begins.
	Volume string
	Base   string
	// The tracker's own directory; empty: in memory only.
	Directory string
	// The unit (bytes) in which the log records what may be dirty, a multiple of the granularity; 0:
	// 64 MiB.
	RegionBytes uint64
}

// Tracker knows which blocks were written since a snapshot, for plugins that own the write path. With
// a directory it survives the process; after a crash it reports more, never less.
//
// Any number of goroutines may use one. It belongs to the process that made it.
type Tracker struct {
	mutex   sync.RWMutex // held alone where the handle is freed
	handle  *C.cbt_tracker
	closed  atomic.Bool
	pending atomic.Int64 // writes in flight, which use the handle
	cleanup runtime.Cleanup
}

// Epoch is a time between two snapshots.
type Epoch struct {
	Base   string // the snapshot at which it began
	Closed bool   // it ended, and its map is not acknowledged
	Exact  bool   // false: a crash made it report more than was written
}

// CreateTracker makes a tracker in which nothing has changed since options.Base. Errors:
// InvalidArgument, AlreadyExists if the directory has a tracker, Unavailable if another has it open,
// those of files.
func CreateTracker(options TrackerOptions) (*Tracker, error) { return makeTracker(options, false) }

// RecoverTracker opens the tracker that was left in options.Directory, closed or not. Call it only
// after writes of the old process have ended, and look at its epochs then:
//
//	one, open                      continue
//	two, both open                 the process ended around a snapshot: if it was taken close the
//	                               epoch, otherwise cancel it
//	two, the first one closed      close the epoch to get its map again, store it, acknowledge it
//
// Errors: NotFound, FailedPrecondition for another volume or geometry, Unavailable if another has it
// open, DataLoss if the changes can't be known: take a full backup.
func RecoverTracker(options TrackerOptions) (*Tracker, error) { return makeTracker(options, true) }

func makeTracker(options TrackerOptions, left bool) (*Tracker, error) {
	t, free, err := texts(options.Volume, options.Base, options.Directory)
	if err != nil {
		return nil, err
	}
	defer free()
	o := C.cbt_tracker_options{struct_size: C.sizeof_cbt_tracker_options, geometry: options.Geometry.c(),
		volume: t[0].c, base: t[1].c, directory: t[2].orNull(), region_bytes: C.uint64_t(options.RegionBytes)}
	var handle *C.cbt_tracker
	var e *C.cbt_error
	var code C.cbt_code
	if left {
		code = C.cbt_tracker_recover(&o, &handle, &e)
	} else {
		code = C.cbt_tracker_create(&o, &handle, &e)
	}
	if err := failed(code, e); err != nil {
		return nil, err
	}
	made := &Tracker{handle: handle}
	made.cleanup = watch(made, "Tracker")
	return made, nil
}

// use runs a call on the tracker's handle.
func (t *Tracker) use(call func(handle *C.cbt_tracker, e **C.cbt_error) C.cbt_code) error {
	t.mutex.RLock()
	defer t.mutex.RUnlock()
	if t.closed.Load() {
		return refused("the tracker is closed")
	}
	var e *C.cbt_error
	code := call(t.handle, &e)
	return failed(code, e)
}

// Write is a write in flight. One that is dropped without End counts as in flight as long as the
// tracker exists: each epoch reports it, and the tracker's memory stays.
type Write struct {
	raw     C.cbt_write
	tracker *Tracker
	ended   atomic.Bool
}

// Begin announces a write of length bytes at offset, before it is issued. After a failure it must not
// be issued. End it when its data is in the storage. Errors: OutOfRange past the capacity, those of
// the log, repeated until Checkpoint succeeds.
func (t *Tracker) Begin(offset, length uint64) (*Write, error) {
	write := &Write{tracker: t}
	err := t.use(func(handle *C.cbt_tracker, e **C.cbt_error) C.cbt_code {
		code := C.cbt_tracker_begin(handle, C.uint64_t(offset), C.uint64_t(length), &write.raw, e)
		if code == C.CBT_OK {
			t.pending.Add(1)
		}
		return code
	})
	if err != nil {
		return nil, err
	}
	return write, nil
}

// End says that the write's data is in the storage. It may be called again, from any goroutine, and
// also after the tracker's Close.
func (w *Write) End() {
	if w.ended.Swap(true) {
		return
	}
	C.cbt_write_end(&w.raw)
	if w.tracker.pending.Add(-1) == 0 && w.tracker.closed.Load() {
		w.tracker.free()
	}
}

// Mark is Begin without an end, for callers that keep writes and snapshots apart: none of these
// writes may be in flight between OpenEpoch and CloseEpoch. After a failure some are recorded, and
// none may be issued.
func (t *Tracker) Mark(extents ...Extent) error {
	offsets, lengths := columns(extents)
	return t.use(func(handle *C.cbt_tracker, e **C.cbt_error) C.cbt_code {
		return C.cbt_tracker_mark(handle, (*C.uint64_t)(unsafe.SliceData(offsets)),
			(*C.uint64_t)(unsafe.SliceData(lengths)), C.uint64_t(len(extents)), e)
	})
}

// OpenEpoch begins an epoch at the snapshot `name`. Take the snapshot after this returns. Errors:
// FailedPrecondition if two epochs are open or one is not acknowledged.
func (t *Tracker) OpenEpoch(name string) error {
	id, err := newText(name)
	if err != nil {
		return err
	}
	defer id.free()
	return t.use(func(handle *C.cbt_tracker, e **C.cbt_error) C.cbt_code {
		return C.cbt_tracker_open_epoch(handle, id.c, e)
	})
}

// CloseEpoch ends the older epoch and returns the map, with its names, of what changed in it. The
// tracker returns it again until Acknowledge, also after a crash.
func (t *Tracker) CloseEpoch() (*Map, error) {
	return t.made(func(handle *C.cbt_tracker, made **C.cbt_map, e **C.cbt_error) C.cbt_code {
		return C.cbt_tracker_close_epoch(handle, made, e)
	})
}

// Changes is what has changed in the oldest open epoch so far.
func (t *Tracker) Changes() (*Map, error) {
	return t.made(func(handle *C.cbt_tracker, made **C.cbt_map, e **C.cbt_error) C.cbt_code {
		return C.cbt_tracker_changes(handle, made, e)
	})
}

func (t *Tracker) made(call func(handle *C.cbt_tracker, made **C.cbt_map, e **C.cbt_error) C.cbt_code) (*Map, error) {
	var made *C.cbt_map
	err := t.use(func(handle *C.cbt_tracker, e **C.cbt_error) C.cbt_code { return call(handle, &made, e) })
	if err != nil {
		return nil, err
	}
	return madeMap(C.CBT_OK, made, nil)
}

// Acknowledge says that the caller has stored the map, which is known by its names: the tracker may
// forget it.
func (t *Tracker) Acknowledge(changes *Map) error {
	return changes.use(func(stored *C.cbt_map) error {
		return t.use(func(handle *C.cbt_tracker, e **C.cbt_error) C.cbt_code {
			return C.cbt_tracker_acknowledge(handle, stored, e)
		})
	})
}

// CancelEpoch drops the newer epoch because its snapshot was not taken.
func (t *Tracker) CancelEpoch() error {
	return t.use(func(handle *C.cbt_tracker, e **C.cbt_error) C.cbt_code {
		return C.cbt_tracker_cancel_epoch(handle, e)
	})
}

// Epochs are one or two, oldest first.
func (t *Tracker) Epochs() ([]Epoch, error) {
	t.mutex.RLock()
	defer t.mutex.RUnlock()
	if t.closed.Load() {
		return nil, refused("the tracker is closed")
	}
	found := make([]Epoch, 0, 2)
	for i := range C.cbt_tracker_epochs(t.handle) {
		epoch := C.cbt_epoch{struct_size: C.sizeof_cbt_epoch}
		var name *C.cbt_bytes
		var e *C.cbt_error
		code := C.cbt_tracker_epoch(t.handle, i, &epoch, &e)
		if code == C.CBT_OK {
			code = C.cbt_tracker_epoch_base(t.handle, i, &name, &e)
		}
		// Another goroutine may have ended an epoch meanwhile.
		if err := failed(code, e); err != nil {
			if err.(*Error).Code == codes.OutOfRange {
				break
			}
			return nil, err
		}
		base := C.GoStringN((*C.char)(C.cbt_bytes_data_borrowed(name)), C.int(C.cbt_bytes_size(name)))
		C.cbt_bytes_free(name)
		found = append(found, Epoch{base, epoch.closed != 0, epoch.exact != 0})
	}
	return found, nil
}

// Checkpoint saves the exact state, so that a crash over-reports only what is written from now on.
func (t *Tracker) Checkpoint() error {
	return t.use(func(handle *C.cbt_tracker, e **C.cbt_error) C.cbt_code {
		return C.cbt_tracker_checkpoint(handle, e)
	})
}

// Close saves the exact state and ends tracking; the epochs are kept. It may be called again. The
// tracker is closed also after an error, and RecoverTracker reports more then. Writes in flight may
// still be ended.
func (t *Tracker) Close() error {
	err := t.use(func(handle *C.cbt_tracker, e **C.cbt_error) C.cbt_code {
		return C.cbt_tracker_close(handle, e)
	})
	if t.closed.Swap(true) {
		return nil
	}
	t.cleanup.Stop()
	if t.pending.Load() == 0 {
		t.free()
	}
	return err
}

func (t *Tracker) free() {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	if t.pending.Load() == 0 && t.handle != nil {
		C.cbt_tracker_free(t.handle)
		t.handle = nil
	}
}

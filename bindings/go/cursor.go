package cbt

// #include "shim.h"
import "C"

import (
	"context"
	"io"
	"iter"
	"runtime"
	"runtime/cgo"
	"sync"
	"unsafe"

	"google.golang.org/grpc/codes"
)

// Geometry is the size of a volume and of its blocks. The capacity need not be a multiple of the
// granularity.
type Geometry struct {
	Capacity    uint64
	Granularity uint64
}

func (g Geometry) c() C.cbt_geometry {
	return C.cbt_geometry{capacity: C.uint64_t(g.Capacity), granularity: C.uint64_t(g.Granularity)}
}

// Extent is the range [Offset, Offset+Length) of a volume.
type Extent struct {
	Offset uint64
	Length uint64
}

// End is the first offset after the extent.
func (e Extent) End() uint64 { return e.Offset + e.Length }

// Batch is what Cursor.Next returns: extents in ascending order, perhaps none.
type Batch struct {
	Offsets []uint64
	Lengths []uint64
	// Every extent below this offset has been returned.
	Covered uint64
}

// Extents of a batch. One call into C returns so many: the call costs less than a ten-thousandth of
// what it brings.
const batchExtents = 4096

// Cursor is a position in the changed (or allocated) extents of a volume. Extents ascend and never
// overlap. They end at or below the capacity; only the last block of ToBlocks may end past it.
//
// A cursor may move between goroutines. Calls on it must not overlap; Close waits for one that runs.
type Cursor struct {
	mutex    sync.Mutex
	handle   *C.cbt_cursor
	geometry Geometry
	complete bool
	read     C.cbt_go_read
	offsets  []uint64
	lengths  []uint64
	cleanup  runtime.Cleanup
}

func newCursor(handle *C.cbt_cursor) *Cursor {
	g := C.cbt_cursor_geometry(handle)
	c := &Cursor{handle: handle, geometry: Geometry{uint64(g.capacity), uint64(g.granularity)}}
	c.cleanup = watch(c, "Cursor")
	return c
}

func madeCursor(code C.cbt_code, handle *C.cbt_cursor, e *C.cbt_error) (*Cursor, error) {
	if err := failed(code, e); err != nil {
		return nil, err
	}
	return newCursor(handle), nil
}

// lock gets the cursor for one call.
func (c *Cursor) lock() error {
	if c == nil {
		return &Error{codes.InvalidArgument, "the cursor is nil"}
	}
	if !c.mutex.TryLock() {
		return refused("another call on the cursor runs")
	}
	if c.handle == nil {
		c.mutex.Unlock()
		return refused("the cursor is closed, or was consumed by a transform or an answer")
	}
	return nil
}

// take leaves the cursor closed, and its handle to the caller.
func (c *Cursor) take() (*C.cbt_cursor, error) {
	if err := c.lock(); err != nil {
		return nil, err
	}
	defer c.mutex.Unlock()
	handle := c.handle
	c.handle = nil
	c.cleanup.Stop()
	return handle, nil
}

// Close frees the cursor. It may be called again, but not by the cursor's own Source, whose call it
// would wait for.
func (c *Cursor) Close() error {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	if c.handle != nil {
		C.cbt_cursor_free(c.handle)
		c.handle = nil
		c.cleanup.Stop()
	}
	return nil
}

// Geometry is the size of the volume, and the unit in which the cursor knows about changes.
func (c *Cursor) Geometry() Geometry { return c.geometry }

// Next returns the next extents, and io.EOF once all have been returned. Without io.EOF there is no
// answer: any other error means that extents are missing, and is repeated until Seek succeeds. The
// slices belong to the cursor and change with the next call.
func (c *Cursor) Next() (Batch, error) {
	if err := c.lock(); err != nil {
		return Batch{}, err
	}
	defer c.mutex.Unlock()
	if c.complete {
		return Batch{}, io.EOF
	}
	if c.offsets == nil {
		c.offsets, c.lengths = make([]uint64, batchExtents), make([]uint64, batchExtents)
	}
	C.cbt_go_cursor_read(c.handle, (*C.uint64_t)(&c.offsets[0]), (*C.uint64_t)(&c.lengths[0]), batchExtents, &c.read)
	if c.read.code != C.CBT_OK {
		err := failed(c.read.code, c.read.error)
		c.read.error = nil
		return Batch{}, err
	}
	c.complete = c.read.complete != 0
	return Batch{c.offsets[:c.read.count], c.lengths[:c.read.count], uint64(c.read.covered)}, nil
}

// Seek moves to an offset, rounded down to the granularity: what follows is the whole answer cut at
// that point.
func (c *Cursor) Seek(offset uint64) error {
	if err := c.lock(); err != nil {
		return err
	}
	defer c.mutex.Unlock()
	// Also where it fails: the engine says then whether there still is an answer.
	c.complete = false
	var e *C.cbt_error
	code := C.cbt_cursor_seek(c.handle, C.uint64_t(offset), &e)
	return failed(code, e)
}

// Batches ranges over what is left. A failure, or the end of ctx, is the last pair's error; a loop
// that goes on after it panics, so that no incomplete answer passes for a complete one.
func (c *Cursor) Batches(ctx context.Context) iter.Seq2[Batch, error] {
	return func(yield func(Batch, error) bool) {
		for {
			err := contextError(ctx)
			var batch Batch
			if err == nil {
				batch, err = c.Next()
			}
			if err == io.EOF {
				return
			}
			if !yield(batch, err) {
				return
			}
			if err != nil {
				panic("cbt: a loop over a Cursor went on after its error: " + err.Error())
			}
		}
	}
}

// Extents is Batches, one extent at a time.
func (c *Cursor) Extents(ctx context.Context) iter.Seq2[Extent, error] {
	return func(yield func(Extent, error) bool) {
		for batch, err := range c.Batches(ctx) {
			if err != nil {
				if yield(Extent{}, err) {
					panic("cbt: a loop over a Cursor went on after its error: " + err.Error())
				}
				return
			}
			for i, offset := range batch.Offsets {
				if !yield(Extent{offset, batch.Lengths[i]}, nil) {
					return
				}
			}
		}
	}
}

// bytes are kept by the library: a copy, or the caller's memory, pinned.
func newBytes(data []byte, pinned bool) (*C.cbt_bytes, error) {
	var bytes *C.cbt_bytes
	var e *C.cbt_error
	start := unsafe.Pointer(unsafe.SliceData(data))
	if !pinned || len(data) == 0 {
		code := C.cbt_bytes_copy(start, C.uint64_t(len(data)), &bytes, &e)
		return bytes, failed(code, e)
	}
	pinner := new(runtime.Pinner)
	pinner.Pin(unsafe.SliceData(data)) // memory that is not Go's stays where it is
	handle := cgo.NewHandle(func() { pinner.Unpin(); runtime.KeepAlive(data) })
	code := C.cbt_go_bytes_own(start, C.uint64_t(len(data)), C.uintptr_t(handle), &bytes, &e)
	if err := failed(code, e); err != nil {
		cbtGoRelease(C.uintptr_t(handle))
		return nil, err
	}
	return bytes, nil
}

// BitmapLayout says how bytes hold bits. The zero value: bit k of byte n is bit 8n+k, and set bits
// mean changed.
type BitmapLayout struct {
	// The index of the bitmap's first bit in the bytes.
	FirstBit uint64
	// Bit 0 of a byte is the most significant one.
	MostSignificantFirst bool
	// Clear bits, instead of set ones, mean changed.
	Inverted bool
	// The bytes of each word of so many bytes (1, 2, 4 or 8) are reversed; 0 is 1.
	ReversedWordBytes uint32
	// The cursor uses the bytes where they are, pinned, instead of a copy. They must not change, nor
	// be unmapped, while the cursor or anything made from it is open: an answer that is read from
	// changing bytes may miss changes.
	Pinned bool
}

func (l BitmapLayout) c() C.cbt_bitmap_layout {
	layout := C.cbt_bitmap_layout{struct_size: C.sizeof_cbt_bitmap_layout, first_bit: C.uint64_t(l.FirstBit),
		reversed_word_bytes: C.uint32_t(l.ReversedWordBytes)}
	if l.MostSignificantFirst {
		layout.most_significant_first = 1
	}
	if l.Inverted {
		layout.inverted = 1
	}
	return layout
}

// FromBitmap makes a cursor over the runs of set bits, one bit for each block of the geometry.
func FromBitmap(bits []byte, geometry Geometry, layout BitmapLayout) (*Cursor, error) {
	bytes, err := newBytes(bits, layout.Pinned)
	if err != nil {
		return nil, err
	}
	defer C.cbt_bytes_free(bytes)
	l, g := layout.c(), geometry.c()
	var handle *C.cbt_cursor
	var e *C.cbt_error
	code := C.cbt_cursor_from_bitmap(bytes, &l, &g, &handle, &e)
	return madeCursor(code, handle, e)
}

// Operation says how two bitmaps are combined.
type Operation int32

const (
	Xor    Operation = C.CBT_XOR     // set in exactly one: blocks whose state differs
	AndNot Operation = C.CBT_AND_NOT // set in the target and not in the base
	Or     Operation = C.CBT_OR      // set in either
	And    Operation = C.CBT_AND     // set in both
)

// FromBitmaps is FromBitmap for a combination of two bitmaps, which is not built in memory.
func FromBitmaps(base, target []byte, operation Operation, geometry Geometry, layout BitmapLayout) (*Cursor, error) {
	before, err := newBytes(base, layout.Pinned)
	if err != nil {
		return nil, err
	}
	defer C.cbt_bytes_free(before)
	after, err := newBytes(target, layout.Pinned)
	if err != nil {
		return nil, err
	}
	defer C.cbt_bytes_free(after)
	l, g := layout.c(), geometry.c()
	var handle *C.cbt_cursor
	var e *C.cbt_error
	code := C.cbt_cursor_from_bitmaps(before, after, C.int32_t(operation), &l, &g, &handle, &e)
	return madeCursor(code, handle, e)
}

// FromExtents makes a cursor over a copy of the extents. They ascend, don't overlap, are not empty,
// end at or below the capacity, and begin and end at multiples of the granularity or at the capacity.
func FromExtents(extents []Extent, geometry Geometry) (*Cursor, error) {
	offsets, lengths := columns(extents)
	g := geometry.c()
	var handle *C.cbt_cursor
	var e *C.cbt_error
	code := C.cbt_cursor_from_extents((*C.uint64_t)(unsafe.SliceData(offsets)), (*C.uint64_t)(unsafe.SliceData(lengths)),
		C.uint64_t(len(extents)), &g, &handle, &e)
	return madeCursor(code, handle, e)
}

// FromPinnedMemory makes a cursor over the blocks (512 bytes to 64 MiB; 0: 4096) in which two ranges
// of one size differ; without a base (nil), over those that hold a byte other than 0. The memory is
// used where it is: it must not change, nor be unmapped, while the cursor is open.
func FromPinnedMemory(base, target []byte, blockSize uint64) (*Cursor, error) {
	after, err := newBytes(target, true)
	if err != nil {
		return nil, err
	}
	defer C.cbt_bytes_free(after)
	var handle *C.cbt_cursor
	var e *C.cbt_error
	if base == nil {
		code := C.cbt_cursor_from_memory(after, C.uint64_t(blockSize), &handle, &e)
		return madeCursor(code, handle, e)
	}
	before, err := newBytes(base, true)
	if err != nil {
		return nil, err
	}
	defer C.cbt_bytes_free(before)
	code := C.cbt_cursor_from_memory_delta(before, after, C.uint64_t(blockSize), &handle, &e)
	return madeCursor(code, handle, e)
}

// Source is a storage system's own knowledge. It is used by one goroutine at a time. If it is an
// io.Closer, it is closed with its cursor.
type Source interface {
	// Seek moves to a multiple of the granularity below the capacity: the next extents are those that
	// end after it, cut at it.
	Seek(offset uint64) error
	// Next writes extents to the two slices, which are as long as each other and must not be kept. It
	// returns their number, and the offset below which nothing remains to be reported. Extents ascend,
	// begin at or after the coverage so far and end at or below the new one. Coverage that reaches the
	// capacity ends the answer: nothing else does.
	Next(offsets, lengths []uint64) (count int, covered uint64, err error)
}

// FromSource makes a cursor over a Source. Everything it returns is checked: what breaks the rules
// fails with Internal. The cursor consumes the source if this succeeds.
func FromSource(source Source, geometry Geometry) (*Cursor, error) {
	if source == nil {
		return nil, &Error{codes.InvalidArgument, "the source is nil"}
	}
	handle := cgo.NewHandle(source)
	var cursor *C.cbt_cursor
	var e *C.cbt_error
	code := C.cbt_go_cursor(C.uintptr_t(handle), C.uint64_t(geometry.Capacity), C.uint64_t(geometry.Granularity), &cursor, &e)
	if err := failed(code, e); err != nil {
		handle.Delete()
		return nil, err
	}
	return newCursor(cursor), nil
}

// Purpose says what a source is opened for.
type Purpose int32

const (
	AnyPurpose Purpose = C.CBT_PURPOSE_ANY // what the input reports; an error if it can report both
	Allocated  Purpose = C.CBT_PURPOSE_ALLOCATED
	Delta      Purpose = C.CBT_PURPOSE_DELTA
)

// SourceBlocks, as SourceOptions.BlockSize: the source's own blocks.
const SourceBlocks = uint64(C.CBT_SOURCE_BLOCKS)

// SourceOptions are those of OpenSource; the zero value is the default.
type SourceOptions struct {
	// FORMAT or FORMAT:KEY=VALUE,..., as `cbtctl extents --from` takes it. Empty: the content decides,
	// and a guest that writes to the volume controls the content.
	Format string
	// The address of an earlier state of the volume.
	Base    string
	Purpose Purpose
	// Read two images' reflinks instead of their bytes.
	ByExtents bool
	// Sizes of the target and of a larger base, for inputs that do not hold them; 0: unknown.
	Capacity     uint64
	BaseCapacity uint64
	// Extents are rounded outward to multiples of it; 0: 4096.
	BlockSize uint64
	// The most time that all calls together may take; 0: no limit.
	TimeLimitMilliseconds uint64
}

// OpenSource opens a file, a device or an NBD export of any format that the library reads.
func OpenSource(address string, options SourceOptions) (*Cursor, error) {
	o := C.cbt_source_options{struct_size: C.sizeof_cbt_source_options, purpose: C.int32_t(options.Purpose),
		capacity: C.uint64_t(options.Capacity), base_capacity: C.uint64_t(options.BaseCapacity),
		block_size: C.uint64_t(options.BlockSize), time_limit_ms: C.uint64_t(options.TimeLimitMilliseconds)}
	if options.ByExtents {
		o.by_extents = 1
	}
	where, err := newText(address)
	if err != nil {
		return nil, err
	}
	defer where.free()
	format, err := newText(options.Format)
	if err != nil {
		return nil, err
	}
	defer format.free()
	base, err := newText(options.Base)
	if err != nil {
		return nil, err
	}
	defer base.free()
	o.format, o.base = format.orNull(), base.orNull()
	var handle *C.cbt_cursor
	var e *C.cbt_error
	code := C.cbt_source_open(where.c, &o, &handle, &e)
	return madeCursor(code, handle, e)
}

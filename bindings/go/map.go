package cbt

// #include "shim.h"
import "C"

import (
	"runtime"
	"sync"
	"unsafe"

	"google.golang.org/grpc/codes"
)

// Map is a change map: the set of changed blocks between two snapshots, in memory and as a .cbm file.
// Any number of goroutines may use one; SetNames and Close wait for the others.
type Map struct {
	mutex   sync.RWMutex
	handle  *C.cbt_map
	cleanup runtime.Cleanup
}

// MapInfo is what a map holds. Blocks and bytes are those that changed.
type MapInfo struct {
	Geometry Geometry
	Blocks   uint64
	Bytes    uint64 // the last block may be partial
	Runs     uint64 // of neighbouring blocks; a cursor returns one extent for each
}

// Names are those of a map's volume and snapshots; empty: unknown.
type Names struct {
	Volume string
	Base   string
	Target string
}

func madeMap(code C.cbt_code, handle *C.cbt_map, e *C.cbt_error) (*Map, error) {
	if err := failed(code, e); err != nil {
		return nil, err
	}
	m := &Map{handle: handle}
	m.cleanup = watch(m, "Map")
	return m, nil
}

// use runs a call on the map's handle.
func (m *Map) use(call func(handle *C.cbt_map) error) error {
	if m == nil {
		return &Error{codes.InvalidArgument, "the map is nil"}
	}
	m.mutex.RLock()
	defer m.mutex.RUnlock()
	if m.handle == nil {
		return refused("the map is closed")
	}
	return call(m.handle)
}

// Close frees the map. It may be called again. Cursors over the map keep what they read.
func (m *Map) Close() error {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	if m.handle != nil {
		C.cbt_map_free(m.handle)
		m.handle = nil
		m.cleanup.Stop()
	}
	return nil
}

// NewMap makes a map of the blocks that hold a byte of the extents, which may be in any order.
func NewMap(extents []Extent, geometry Geometry) (*Map, error) {
	g := geometry.c()
	var builder *C.cbt_map_builder
	var e *C.cbt_error
	code := C.cbt_map_builder_new(&g, &builder, &e)
	if err := failed(code, e); err != nil {
		return nil, err
	}
	defer C.cbt_map_builder_free(builder)
	if len(extents) > 0 {
		offsets, lengths := columns(extents)
		code = C.cbt_map_builder_add(builder, (*C.uint64_t)(unsafe.SliceData(offsets)), (*C.uint64_t)(unsafe.SliceData(lengths)),
			C.uint64_t(len(extents)), &e)
		if err := failed(code, e); err != nil {
			return nil, err
		}
	}
	var handle *C.cbt_map
	code = C.cbt_map_builder_build(builder, &handle, &e)
	return madeMap(code, handle, e)
}

// MapOf makes a map of everything that the cursor reports from 0 on, rounded outward to granularity
// (0: the cursor's). The cursor stays the caller's, and is then at its end; after an error Next fails
// until Seek succeeds.
func MapOf(cursor *Cursor, granularity uint64) (*Map, error) {
	if err := cursor.lock(); err != nil {
		return nil, err
	}
	defer cursor.mutex.Unlock()
	var handle *C.cbt_map
	var e *C.cbt_error
	code := C.cbt_map_from_cursor(cursor.handle, C.uint64_t(granularity), &handle, &e)
	cursor.complete = code == C.CBT_OK
	return madeMap(code, handle, e)
}

// LoadMap maps a file into memory and checks all of it. The file must not be modified in place while
// the map is open; Save replaces it, and is safe. Errors: NotFound, PermissionDenied, Unavailable,
// InvalidArgument if it is no change map, DataLoss if it is damaged, Unimplemented for a newer version.
func LoadMap(path string) (*Map, error) {
	name, err := newText(path)
	if err != nil {
		return nil, err
	}
	defer name.free()
	var handle *C.cbt_map
	var e *C.cbt_error
	code := C.cbt_map_load(name.c, &handle, &e)
	return madeMap(code, handle, e)
}

// Save writes the map and waits for the disk. After any failure or crash the path is as it was, or the
// complete new file.
func (m *Map) Save(path string) error {
	name, err := newText(path)
	if err != nil {
		return err
	}
	defer name.free()
	return m.use(func(handle *C.cbt_map) error {
		var e *C.cbt_error
		code := C.cbt_map_save(handle, name.c, 0, &e)
		return failed(code, e)
	})
}

// Cursor makes a cursor over the extents of the map.
func (m *Map) Cursor() (cursor *Cursor, err error) {
	err = m.use(func(handle *C.cbt_map) error {
		var made *C.cbt_cursor
		var e *C.cbt_error
		code := C.cbt_cursor_from_map(handle, &made, &e)
		cursor, err = madeCursor(code, made, e)
		return err
	})
	return cursor, err
}

// Info counts what the map holds.
func (m *Map) Info() (info MapInfo, err error) {
	err = m.use(func(handle *C.cbt_map) error {
		found := C.cbt_map_info{struct_size: C.sizeof_cbt_map_info}
		var e *C.cbt_error
		code := C.cbt_map_get_info(handle, &found, &e)
		info = MapInfo{Geometry{uint64(found.geometry.capacity), uint64(found.geometry.granularity)},
			uint64(found.blocks), uint64(found.bytes), uint64(found.runs)}
		return failed(code, e)
	})
	return info, err
}

// Names are those of the volume and the snapshots.
func (m *Map) Names() (names Names, err error) {
	err = m.use(func(handle *C.cbt_map) error {
		names = Names{C.GoString(C.cbt_map_name_borrowed(handle, C.CBT_NAME_VOLUME)),
			C.GoString(C.cbt_map_name_borrowed(handle, C.CBT_NAME_BASE)),
			C.GoString(C.cbt_map_name_borrowed(handle, C.CBT_NAME_TARGET))}
		return nil
	})
	return names, err
}

// SetNames sets them; a chain wants them.
func (m *Map) SetNames(names Names) error {
	t, free, err := texts(names.Volume, names.Base, names.Target)
	if err != nil {
		return err
	}
	defer free()
	m.mutex.Lock()
	defer m.mutex.Unlock()
	if m.handle == nil {
		return refused("the map is closed")
	}
	var e *C.cbt_error
	code := C.cbt_map_set_identity(m.handle, t[0].c, t[1].c, t[2].c, &e)
	return failed(code, e)
}

// UnionOfMaps makes a map, without names, of what is in any of the maps. Maps of different granularity
// combine at the finest one, which must divide the others. A map that is smaller than the largest
// counts as changed from its own end on.
func UnionOfMaps(maps ...*Map) (*Map, error) {
	if len(maps) == 0 {
		return nil, &Error{codes.InvalidArgument, "a union needs a map"}
	}
	handles := make([]*C.cbt_map, 0, len(maps))
	var result *Map
	var collect func(rest []*Map) error
	collect = func(rest []*Map) error {
		if len(rest) > 0 {
			return rest[0].use(func(handle *C.cbt_map) error {
				handles = append(handles, handle)
				return collect(rest[1:])
			})
		}
		var made *C.cbt_map
		var e *C.cbt_error
		code := C.cbt_map_union(unsafe.SliceData(handles), C.uint64_t(len(handles)), &made, &e)
		var err error
		result, err = madeMap(code, made, e)
		return err
	}
	err := collect(maps)
	return result, err
}

func columns(extents []Extent) (offsets, lengths []uint64) {
	offsets, lengths = make([]uint64, len(extents)), make([]uint64, len(extents))
	for i, extent := range extents {
		offsets[i], lengths[i] = extent.Offset, extent.Length
	}
	return offsets, lengths
}

// Package arrow reads Arrow streams of bindings/go with Arrow's own library for Go. It is a module of
// its own, since the binding needs none of that.
package arrow

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"runtime"
	"strings"
	"testing"
	"unsafe"

	"cbt.example.com/cbt"
	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/arrio"
	"github.com/apache/arrow-go/v18/arrow/cdata"
)

var volume = cbt.Geometry{Capacity: 1 << 30, Granularity: 4096}

func read(t *testing.T, cursor *cbt.Cursor, rows uint64) arrio.Reader {
	t.Helper()
	var stream cdata.CArrowArrayStream
	if err := cursor.ExportArrow(unsafe.Pointer(&stream), rows); err != nil {
		t.Fatal(err)
	}
	reader, err := cdata.ImportCRecordReader(&stream, nil)
	if err != nil {
		t.Fatal(err)
	}
	return reader
}

func column(t *testing.T, batch arrow.RecordBatch, index int, name string) []uint64 {
	t.Helper()
	field := batch.Schema().Field(index)
	if field.Name != name || field.Nullable || field.Type.ID() != arrow.UINT64 {
		t.Errorf("column %v", field)
	}
	return batch.Column(index).(*array.Uint64).Uint64Values()
}

func TestReadByArrow(t *testing.T) {
	var extents []cbt.Extent
	for offset := uint64(0); offset < 5000; offset += 2 + rand.Uint64N(3) {
		extents = append(extents, cbt.Extent{Offset: offset * 4096, Length: 4096})
	}
	for _, rows := range []uint64{0, 1, 7, 1 << 20} {
		cursor, err := cbt.FromExtents(extents, volume)
		if err != nil {
			t.Fatal(err)
		}
		reader := read(t, cursor, rows)
		if _, err := cursor.Next(); err == nil {
			t.Error("the cursor was not consumed")
		}
		cursor.Close()
		var found []cbt.Extent
		for {
			batch, err := reader.Read()
			if err != nil {
				if !strings.Contains(err.Error(), "EOF") {
					t.Fatal(err)
				}
				break
			}
			if rows > 0 && uint64(batch.NumRows()) > rows {
				t.Errorf("%d rows", batch.NumRows())
			}
			lengths := column(t, batch, 1, "size_bytes")
			for i, offset := range column(t, batch, 0, "byte_offset") {
				found = append(found, cbt.Extent{Offset: offset, Length: lengths[i]})
			}
			if len(found)%100 == 0 {
				runtime.GC()
			}
		}
		if !reflect.DeepEqual(found, extents) {
			t.Errorf("%d of %d extents with %d rows", len(found), len(extents), rows)
		}
	}
}

// broken fails after its first extents.
type broken struct{}

func (broken) Seek(uint64) error { return nil }
func (broken) Next(offsets, lengths []uint64) (int, uint64, error) {
	return 0, 0, fmt.Errorf("the disk is gone")
}

func TestAnErrorIsNoEnd(t *testing.T) {
	cursor, err := cbt.FromSource(broken{}, volume)
	if err != nil {
		t.Fatal(err)
	}
	reader := read(t, cursor, 0)
	for range 2 {
		if _, err := reader.Read(); err == nil || !strings.Contains(err.Error(), "the disk is gone") {
			t.Errorf("ended with %v", err)
		}
	}
}

func TestRefused(t *testing.T) {
	cursor, err := cbt.FromExtents(nil, volume)
	if err != nil {
		t.Fatal(err)
	}
	var stream cdata.CArrowArrayStream
	if cursor.ExportArrow(nil, 0) == nil {
		t.Error("written to nil")
	}
	if cursor.ExportArrow(unsafe.Pointer(&stream), 1<<21) == nil {
		t.Error("batches of any size")
	}
	if cursor.ExportArrow(unsafe.Pointer(&stream), 0) == nil {
		t.Error("a consumed cursor was exported again")
	}
}

package cbt

import (
	"os"
	"path/filepath"
	"reflect"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
)

var volume = Geometry{Capacity: 100*4096 - 512, Granularity: 4096}

func mustMap(t *testing.T, names Names, extents ...Extent) *Map {
	t.Helper()
	made, err := NewMap(extents, volume)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { made.Close() })
	if err := made.SetNames(names); err != nil {
		t.Fatal(err)
	}
	return made
}

func extentsOf(t *testing.T, cursor *Cursor, err error) []Extent {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	defer cursor.Close()
	return readAll(t, cursor)
}

func TestMaps(t *testing.T) {
	made := mustMap(t, Names{"vol", "mon", "tue"}, Extent{99*4096 + 1, 10}, Extent{5000, 4096}, Extent{4096, 1})
	want := []Extent{{4096, 2 * 4096}, {99 * 4096, 4096 - 512}}
	cursor, err := made.Cursor()
	if found := extentsOf(t, cursor, err); !reflect.DeepEqual(found, want) {
		t.Errorf("found %v", found)
	}
	if info, err := made.Info(); err != nil || info != (MapInfo{volume, 3, 3*4096 - 512, 2}) {
		t.Errorf("%+v: %v", info, err)
	}
	path := filepath.Join(t.TempDir(), "m.cbm")
	if err := made.Save(path); err != nil {
		t.Fatal(err)
	}
	loaded, err := LoadMap(path)
	if err != nil {
		t.Fatal(err)
	}
	defer loaded.Close()
	if names, err := loaded.Names(); err != nil || names != (Names{"vol", "mon", "tue"}) {
		t.Errorf("%+v: %v", names, err)
	}
	other := mustMap(t, Names{}, Extent{0, 1})
	united, err := UnionOfMaps(loaded, other, loaded)
	if err != nil {
		t.Fatal(err)
	}
	defer united.Close()
	cursor, err = united.Cursor()
	if err != nil {
		t.Fatal(err)
	}
	again, err := MapOf(cursor, 8192)
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	// A cursor outlives its map, and is at its end now.
	united.Close()
	if found := extentsOf(t, cursor, nil); len(found) != 0 {
		t.Errorf("found %v", found)
	}
	cursor, err = again.Cursor()
	if found := extentsOf(t, cursor, err); !reflect.DeepEqual(found, []Extent{{0, 4 * 4096}, {98 * 4096, 2*4096 - 512}}) {
		t.Errorf("found %v", found)
	}

	_, err = united.Cursor()
	wantCode(t, err, codes.FailedPrecondition)
	wantCode(t, united.Save(path), codes.FailedPrecondition)
	wantCode(t, united.SetNames(Names{}), codes.FailedPrecondition)
	_, err = UnionOfMaps(loaded, united)
	wantCode(t, err, codes.FailedPrecondition)
	_, err = UnionOfMaps(loaded, nil)
	wantCode(t, err, codes.InvalidArgument)
	_, err = UnionOfMaps()
	wantCode(t, err, codes.InvalidArgument)
	_, err = NewMap([]Extent{{volume.Capacity, 1}}, volume)
	wantCode(t, err, codes.OutOfRange)
	_, err = LoadMap(path + ".gone")
	wantCode(t, err, codes.NotFound)
	if os.WriteFile(path+".torn", []byte("CBTMAP nonsense"), 0o600) != nil {
		t.Fatal("can't write")
	}
	if torn, err := LoadMap(path + ".torn"); err == nil {
		torn.Close()
		t.Error("a file of nonsense is a map")
	}
}

func TestChains(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "chain")
	chain, err := CreateChain(folder, "vol", "mon", volume)
	if err != nil {
		t.Fatal(err)
	}
	defer chain.Close()
	taken := time.Unix(1764201600, 7)
	for i, days := range [][2]string{{"mon", "tue"}, {"tue", "wed"}, {"wed", "thu"}} {
		if err := chain.AppendAt(mustMap(t, Names{"vol", days[0], days[1]}, Extent{uint64(i) * 8192, 4096}), taken.Add(time.Duration(i))); err != nil {
			t.Fatal(err)
		}
	}
	wantCode(t, chain.Append(mustMap(t, Names{"vol", "mon", "fri"})), codes.FailedPrecondition)
	wantCode(t, chain.AppendAt(mustMap(t, Names{"vol", "thu", "fri"}), time.Unix(1<<40, 0)), codes.InvalidArgument)
	if snapshots, err := chain.Snapshots(); err != nil || len(snapshots) != 4 ||
		snapshots[3] != (Snapshot{"thu", volume.Capacity, taken.Add(2)}) || !snapshots[0].Taken.IsZero() {
		t.Errorf("%v: %v", snapshots, err)
	}
	if err := chain.Remove("tue"); err != nil {
		t.Fatal(err)
	}
	reader, err := OpenChain(folder, ReadChain)
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	var wait sync.WaitGroup
	for range 8 {
		wait.Go(func() {
			cursor, err := reader.Delta("mon", "thu")
			if err != nil {
				t.Error(err)
				return
			}
			defer cursor.Close()
			if found := readAll(t, cursor); !reflect.DeepEqual(found, []Extent{{0, 4096}, {8192, 4096}, {16384, 4096}}) {
				t.Errorf("found %v", found)
			}
		})
	}
	wait.Wait()
	if err := reader.Verify(); err != nil {
		t.Error(err)
	}
	_, err = reader.Delta("mon", "tue")
	wantCode(t, err, codes.NotFound)
	_, err = reader.Delta("", "thu")
	wantCode(t, err, codes.InvalidArgument)
	chain.Close()
	_, err = CreateChain(folder, "vol", "mon", volume)
	wantCode(t, err, codes.AlreadyExists)
	reader.Close()
	_, err = reader.Delta("mon", "thu")
	wantCode(t, err, codes.FailedPrecondition)
	_, err = reader.Snapshots()
	wantCode(t, err, codes.FailedPrecondition)
	wantCode(t, reader.Verify(), codes.FailedPrecondition)
	wantCode(t, reader.Remove("mon"), codes.FailedPrecondition)
	wantCode(t, reader.Append(mustMap(t, Names{})), codes.FailedPrecondition)
}

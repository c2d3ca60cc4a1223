package cbt

import (
	"path/filepath"
	"reflect"
	"sync"
	"testing"

	"google.golang.org/grpc/codes"
)

func trackerIn(t *testing.T, directory string, open func(TrackerOptions) (*Tracker, error)) *Tracker {
	t.Helper()
	tracker, err := open(TrackerOptions{Geometry: volume, Volume: "vol", Base: "mon", Directory: directory, RegionBytes: 65536})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { tracker.Close() })
	return tracker
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func changed(t *testing.T, changes *Map, err error) []Extent {
	t.Helper()
	must(t, err)
	defer changes.Close()
	cursor, err := changes.Cursor()
	return extentsOf(t, cursor, err)
}

// A snapshot, a restart with a map that is not acknowledged, and a snapshot that was not taken.
func TestTrackers(t *testing.T) {
	directory := filepath.Join(t.TempDir(), "tracker")
	tracker := trackerIn(t, directory, CreateTracker)
	write, err := tracker.Begin(4095, 2)
	must(t, err)
	write.End()
	write.End()
	_, err = tracker.Begin(volume.Capacity, 1)
	wantCode(t, err, codes.OutOfRange)
	must(t, tracker.Checkpoint())
	must(t, tracker.OpenEpoch("tue"))
	must(t, tracker.Mark(Extent{20 * 4096, 1}, Extent{30*4096 + 1, 4096}))
	must(t, tracker.Mark())
	wantCode(t, tracker.Mark(Extent{0, 1}, Extent{volume.Capacity, 1}), codes.OutOfRange)
	first, err := tracker.CloseEpoch()
	if found := changed(t, first, err); !reflect.DeepEqual(found, []Extent{{0, 2 * 4096}, {20 * 4096, 4096}, {30 * 4096, 2 * 4096}}) {
		t.Errorf("found %v", found)
	}
	if epochs, err := tracker.Epochs(); err != nil || !reflect.DeepEqual(epochs, []Epoch{{"mon", true, true}, {"tue", false, true}}) {
		t.Errorf("%v: %v", epochs, err)
	}
	must(t, tracker.Close())
	must(t, tracker.Close())
	wantCode(t, tracker.OpenEpoch("wed"), codes.FailedPrecondition)
	_, err = tracker.Begin(0, 1)
	wantCode(t, err, codes.FailedPrecondition)
	_, err = tracker.Epochs()
	wantCode(t, err, codes.FailedPrecondition)
	_, err = tracker.Changes()
	wantCode(t, err, codes.FailedPrecondition)

	tracker = trackerIn(t, directory, RecoverTracker)
	again, err := tracker.CloseEpoch()
	must(t, err)
	defer again.Close()
	if names, err := again.Names(); err != nil || names != (Names{"vol", "mon", "tue"}) {
		t.Errorf("%v: %v", names, err)
	}
	wantCode(t, tracker.Acknowledge(mustMap(t, Names{"vol", "mon", "wed"})), codes.InvalidArgument)
	wantCode(t, tracker.Acknowledge(nil), codes.InvalidArgument)
	must(t, tracker.Acknowledge(again))
	wantCode(t, tracker.Acknowledge(again), codes.FailedPrecondition)
	must(t, tracker.OpenEpoch("wed"))
	must(t, tracker.CancelEpoch())
	now, err := tracker.Changes()
	if found := changed(t, now, err); !reflect.DeepEqual(found, []Extent{{0, 4096}, {20 * 4096, 4096}, {30 * 4096, 2 * 4096}}) {
		t.Errorf("found %v", found)
	}
	_, err = RecoverTracker(TrackerOptions{Geometry: volume, Volume: "vol", Base: "mon", Directory: directory})
	wantCode(t, err, codes.Unavailable)
	_, err = RecoverTracker(TrackerOptions{Geometry: volume, Directory: directory + ".gone"})
	wantCode(t, err, codes.NotFound)
	_, err = CreateTracker(TrackerOptions{Volume: "a\x00b"})
	wantCode(t, err, codes.InvalidArgument)
}

// A write that is in flight while its epoch ends counts in both, and may end after Close.
func TestWritesInFlight(t *testing.T) {
	tracker := trackerIn(t, "", CreateTracker)
	write, err := tracker.Begin(8192, 1)
	must(t, err)
	must(t, tracker.OpenEpoch("tue"))
	first, err := tracker.CloseEpoch()
	if found := changed(t, first, err); !reflect.DeepEqual(found, []Extent{{8192, 4096}}) {
		t.Errorf("found %v", found)
	}
	now, err := tracker.Changes()
	if found := changed(t, now, err); !reflect.DeepEqual(found, []Extent{{8192, 4096}}) {
		t.Errorf("found %v", found)
	}
	must(t, tracker.Close())
	write.End()
	if tracker.handle != nil {
		t.Error("the tracker was not freed with its last write")
	}
}

func TestGoroutinesOfATracker(t *testing.T) {
	tracker := trackerIn(t, "", CreateTracker)
	var wait sync.WaitGroup
	for worker := range 8 {
		wait.Go(func() {
			for block := worker; block < 100; block += 8 {
				write, err := tracker.Begin(uint64(block)*4096, 1)
				if err != nil {
					t.Error(err)
					return
				}
				tracker.Epochs()
				write.End()
			}
		})
	}
	wait.Go(func() {
		for range 20 {
			made, err := tracker.Changes()
			if err != nil {
				t.Error(err)
				return
			}
			made.Close()
		}
	})
	wait.Wait()
	now, err := tracker.Changes()
	if found := changed(t, now, err); !reflect.DeepEqual(found, []Extent{{0, volume.Capacity}}) {
		t.Errorf("found %v", found)
	}
	// Close beside writes: none is lost in a tracker that is freed.
	for range 200 {
		tracker := trackerIn(t, "", CreateTracker)
		for range 2 {
			wait.Go(func() {
				if write, err := tracker.Begin(0, 1); err == nil {
					write.End()
				}
			})
		}
		wait.Go(func() { tracker.Close() })
		wait.Wait()
		if tracker.handle != nil {
			t.Fatal("the tracker was not freed")
		}
	}
}

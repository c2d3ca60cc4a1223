package cbt

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"runtime/debug"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

const mebi = 1 << 20

// scripted is a Source whose calls a test decides.
type scripted struct {
	next   func(offsets, lengths []uint64) (int, uint64, error)
	seek   func(offset uint64) error
	closed int
}

func (s *scripted) Seek(offset uint64) error {
	if s.seek == nil {
		return nil
	}
	return s.seek(offset)
}

func (s *scripted) Next(offsets, lengths []uint64) (int, uint64, error) {
	return s.next(offsets, lengths)
}

func (s *scripted) Close() error {
	s.closed++
	return nil
}

func mustSource(t *testing.T, source Source) *Cursor {
	t.Helper()
	cursor, err := FromSource(source, Geometry{mebi, 4096})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cursor.Close() })
	return cursor
}

func wantCode(t *testing.T, err error, code codes.Code) {
	t.Helper()
	if codeOf(err) != code || status.Code(err) != code {
		t.Fatalf("%v instead of an error with code %v", err, code)
	}
}

func TestASourceThatFails(t *testing.T) {
	for _, c := range []struct {
		err  error
		code codes.Code
		text string
	}{
		{Errorf(codes.Unavailable, "array %d is away", 7), codes.Unavailable, "array 7 is away"},
		{status.Error(codes.DataLoss, "torn"), codes.DataLoss, "torn"},
		{context.Canceled, codes.Canceled, ""},
		{errors.New("whatever"), codes.Unknown, "whatever"},
		{errors.New("a NUL \x00 and more"), codes.Unknown, "a NUL"},
		{io.EOF, codes.Unknown, "EOF"}, // never the end of an answer
		{&Error{codes.OK, "no error at all"}, codes.Unknown, "no error"},
	} {
		calls := 0
		source := &scripted{next: func(offsets, lengths []uint64) (int, uint64, error) {
			if calls++; calls == 1 {
				offsets[0], lengths[0] = 4096, 8192
				return 1, 65536, nil
			}
			return 0, 0, c.err
		}}
		cursor := mustSource(t, source)
		var found []Extent
		var failure error
		for extent, err := range cursor.Extents(context.Background()) {
			if err != nil {
				failure = err
				break
			}
			found = append(found, extent)
		}
		wantCode(t, failure, c.code)
		if !strings.Contains(failure.Error(), c.text) || failure == io.EOF {
			t.Errorf("%v lacks %q", failure, c.text)
		}
		if !reflect.DeepEqual(found, []Extent{{4096, 8192}}) {
			t.Errorf("found %v", found)
		}
		_, err := cursor.Next()
		wantCode(t, err, c.code)
		cursor.Close()
		if source.closed != 1 {
			t.Errorf("closed %d times", source.closed)
		}
	}
}

func TestALoopThatIgnoresAnErrorPanics(t *testing.T) {
	source := &scripted{next: func(_, _ []uint64) (int, uint64, error) { return 0, 0, errors.New("lost") }}
	for name, loop := range map[string]func(cursor *Cursor){
		"extents": func(cursor *Cursor) {
			for range cursor.Extents(context.Background()) {
			}
		},
		"batches": func(cursor *Cursor) {
			for range cursor.Batches(context.Background()) {
			}
		},
	} {
		func() {
			defer func() {
				if value := recover(); value == nil || !strings.Contains(value.(string), "lost") {
					t.Errorf("%s: panic %v", name, value)
				}
			}()
			loop(mustSource(t, source))
		}()
	}
}

func TestASourceThatPanicsOrLies(t *testing.T) {
	log := captureLog(t)
	var nothing *int
	for name, next := range map[string]func(offsets, lengths []uint64) (int, uint64, error){
		"panic":     func(_, _ []uint64) (int, uint64, error) { panic("password") },
		"nil":       func(_, _ []uint64) (int, uint64, error) { return *nothing, 0, nil },
		"index":     func(offsets, _ []uint64) (int, uint64, error) { return int(offsets[len(offsets)]), 0, nil },
		"too many":  func(offsets, _ []uint64) (int, uint64, error) { return len(offsets) + 1, mebi, nil },
		"negative":  func(_, _ []uint64) (int, uint64, error) { return -1, mebi, nil },
		"too far":   func(_, _ []uint64) (int, uint64, error) { return 0, 2 * mebi, nil },
		"no length": func(_, _ []uint64) (int, uint64, error) { return 1, mebi, nil },
		"backward": func(offsets, lengths []uint64) (int, uint64, error) {
			offsets[0], lengths[0], offsets[1], lengths[1] = 8192, 4096, 0, 4096
			return 2, mebi, nil
		},
	} {
		cursor := mustSource(t, &scripted{next: func(offsets, lengths []uint64) (int, uint64, error) {
			offsets[0], lengths[0] = 0, 0
			return next(offsets, lengths)
		}})
		_, err := cursor.Next()
		if codeOf(err) != codes.Internal {
			t.Errorf("%s: %v", name, err)
		}
		if strings.Contains(err.Error(), "password") {
			t.Errorf("the error shows what panicked: %v", err)
		}
	}
	if !strings.Contains(log.String(), "password") || !strings.Contains(log.String(), "border_test.go") {
		t.Errorf("the log lacks the panic: %s", log)
	}
	seek := mustSource(t, &scripted{seek: func(uint64) error { panic("x") },
		next: func(_, _ []uint64) (int, uint64, error) { return 0, 0, nil }})
	wantCode(t, seek.Seek(8192), codes.Internal)
}

// What was at its end is not there any more after a Seek that failed: no answer was read from it.
func TestAFailedCallIsNoEnd(t *testing.T) {
	away := false
	cursor := mustSource(t, &scripted{
		seek: func(uint64) error {
			if away {
				return Errorf(codes.Unavailable, "away")
			}
			return nil
		},
		next: func(offsets, lengths []uint64) (int, uint64, error) {
			offsets[0], lengths[0] = 8192, 4096
			return 1, mebi, nil
		}})
	if found := readAll(t, cursor); len(found) != 1 {
		t.Errorf("found %v", found)
	}
	// Refused, it does not move.
	wantCode(t, cursor.Seek(2*mebi), codes.OutOfRange)
	if found := readAll(t, cursor); len(found) != 0 {
		t.Errorf("found %v", found)
	}
	away = true
	wantCode(t, cursor.Seek(0), codes.Unavailable)
	_, err := cursor.Next()
	wantCode(t, err, codes.Unavailable)
	away = false
	if err := cursor.Seek(0); err != nil {
		t.Fatal(err)
	}
	// A map that fails has read the cursor, perhaps in part.
	_, err = MapOf(cursor, 1<<63)
	wantCode(t, err, codes.InvalidArgument)
	_, err = cursor.Next()
	wantCode(t, err, codes.FailedPrecondition)
	if err := cursor.Seek(0); err != nil {
		t.Fatal(err)
	}
	if found := readAll(t, cursor); len(found) != 1 {
		t.Errorf("found %v", found)
	}
}

func TestACallInACallback(t *testing.T) {
	var outer *Cursor
	var inner []error
	outer = mustSource(t, &scripted{next: func(_, _ []uint64) (int, uint64, error) {
		_, err := outer.Next()
		inner = append(inner, err)
		_, err = outer.Split(8192)
		inner = append(inner, err)
		// Another cursor may be used.
		other, err := FromExtents([]Extent{{0, 4096}}, Geometry{mebi, 4096})
		if err != nil {
			return 0, 0, err
		}
		defer other.Close()
		if _, err := other.Next(); err != nil {
			return 0, 0, err
		}
		runtime.GC()
		return 0, mebi, nil
	}})
	if found := readAll(t, outer); len(found) != 0 || len(inner) < 2 {
		t.Errorf("found %v after %v", found, inner)
	}
	for _, err := range inner {
		wantCode(t, err, codes.FailedPrecondition)
	}
}

func TestAClosedCursor(t *testing.T) {
	bits := []byte{0xff}
	make := func() *Cursor {
		cursor, err := FromBitmap(bits, Geometry{8 * 4096, 4096}, BitmapLayout{})
		if err != nil {
			t.Fatal(err)
		}
		return cursor
	}
	closed := make()
	closed.Close()
	closed.Close()
	consumed := make()
	result, err := consumed.Split(4096)
	if err != nil {
		t.Fatal(err)
	}
	defer result.Close()
	for _, cursor := range []*Cursor{closed, consumed} {
		_, err := cursor.Next()
		wantCode(t, err, codes.FailedPrecondition)
		wantCode(t, cursor.Seek(0), codes.FailedPrecondition)
		_, err = cursor.Split(4096)
		wantCode(t, err, codes.FailedPrecondition)
		live := make()
		_, err = Union(live, cursor)
		wantCode(t, err, codes.FailedPrecondition)
		// It was not consumed.
		if len(readAll(t, live)) != 1 {
			t.Error("the other input of a union that was refused is gone")
		}
		live.Close()
	}
	twice := make()
	_, err = Intersect(twice, twice)
	wantCode(t, err, codes.FailedPrecondition)
	twice.Close()
	var none *Cursor
	_, err = none.Next()
	wantCode(t, err, codes.InvalidArgument)
	for range result.Batches(context.Background()) {
	}
	if _, err := result.Next(); err != io.EOF {
		t.Errorf("after the end: %v", err)
	}
}

// Many goroutines: exactly one call at a time runs, no extent is lost, and Close waits.
func TestGoroutinesOnOneCursor(t *testing.T) {
	bits := make([]byte, mebi)
	for i := range bits {
		bits[i] = 0x55
	}
	cursor, err := FromBitmap(bits, Geometry{8 * mebi * 4096, 4096}, BitmapLayout{Pinned: true})
	if err != nil {
		t.Fatal(err)
	}
	var total, overlaps int
	var count sync.Mutex
	var wait sync.WaitGroup
	for range 8 {
		wait.Go(func() {
			for {
				batch, err := cursor.Next()
				count.Lock()
				total += len(batch.Offsets)
				if codeOf(err) == codes.FailedPrecondition {
					overlaps++
					err = nil
				}
				count.Unlock()
				if err != nil {
					return
				}
			}
		})
	}
	wait.Wait()
	if total != 4*mebi {
		t.Errorf("%d extents, %d overlaps", total, overlaps)
	}
	if err := cursor.Seek(0); err != nil {
		t.Fatal(err)
	}
	wait.Go(func() {
		for {
			if _, err := cursor.Next(); err != nil {
				return
			}
		}
	})
	cursor.Close()
	wait.Wait()
	_, err = cursor.Next()
	wantCode(t, err, codes.FailedPrecondition)
}

// Collections between all calls: pinned bytes that nothing of Go refers to any more, and callbacks.
func TestCollections(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(1))
	stop := make(chan struct{})
	var wait sync.WaitGroup
	wait.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
				runtime.GC()
			}
		}
	})
	defer wait.Wait()
	defer close(stop)
	for round := range 30 {
		cursor := func() *Cursor {
			bits := make([]byte, 4096+round)
			for i := range bits {
				bits[i] = 0x11
			}
			cursor, err := FromBitmap(bits, Geometry{8 * uint64(len(bits)), 1}, BitmapLayout{Pinned: true})
			if err != nil {
				t.Fatal(err)
			}
			return cursor
		}()
		at := uint64(0)
		source := mustSource(t, &scripted{seek: func(offset uint64) error { at = offset; return nil },
			next: func(offsets, lengths []uint64) (int, uint64, error) {
				_ = make([]byte, 1<<16)
				offsets[0], lengths[0] = at, 4096
				at += 8192
				return 1, at, nil
			}})
		if found := readAll(t, cursor); len(found) != 2*(4096+round) || found[1] != (Extent{4, 1}) {
			t.Fatalf("%d extents", len(found))
		}
		if found := readAll(t, source); len(found) != mebi/8192 {
			t.Fatalf("%d extents", len(found))
		}
		cursor.Close()
		source.Close()
	}
}

func TestALeakIsReported(t *testing.T) {
	reported := make(chan string, 8)
	SetLeakHandler(func(what string) { reported <- what })
	defer SetLeakHandler(nil)
	func() {
		if _, err := FromExtents(nil, Geometry{4096, 4096}); err != nil {
			t.Fatal(err)
		}
		closed, err := FromExtents(nil, Geometry{4096, 4096})
		if err != nil {
			t.Fatal(err)
		}
		closed.Close()
		// A handle between Go and C must not hide a leak.
		if _, err := NewService(failing(nil), ServiceOptions{}); err != nil {
			t.Fatal(err)
		}
	}()
	seen := map[string]int{}
	for len(seen) < 2 {
		runtime.GC()
		select {
		case what := <-reported:
			seen[what]++
		case <-time.After(time.Second):
			t.Fatalf("only %v", seen)
		}
	}
	if seen["Cursor"] != 1 || seen["Service"] != 1 {
		t.Errorf("reported %v", seen)
	}
}

func failing(err error) Provider {
	return ProviderFunc(func(context.Context, *Request) (*Answer, error) { return nil, err })
}

// Go interrupts threads by signals; reading files must go on.
func TestSignalsWhileAFileIsRead(t *testing.T) {
	folder := t.TempDir()
	image := make([]byte, 64*mebi)
	for i := 0; i < len(image); i += 3 * 4096 {
		image[i] = 1
	}
	before, after := filepath.Join(folder, "before.img"), filepath.Join(folder, "after.img")
	if os.WriteFile(before, make([]byte, len(image)), 0o600) != nil || os.WriteFile(after, image, 0o600) != nil {
		t.Fatal("can't write")
	}
	stop := make(chan struct{})
	var wait sync.WaitGroup
	wait.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
				syscall.Kill(os.Getpid(), syscall.SIGURG)
				time.Sleep(20 * time.Microsecond)
			}
		}
	})
	defer wait.Wait()
	defer close(stop)
	for range 10 {
		cursor, err := OpenSource(after, SourceOptions{Format: "image", Base: before})
		if err != nil {
			t.Fatal(err)
		}
		if found := readAll(t, cursor); len(found) != (len(image)+3*4096-1)/(3*4096) {
			t.Fatalf("%d extents", len(found))
		}
		cursor.Close()
	}
	_, err := OpenSource(filepath.Join(folder, "nothing"), SourceOptions{})
	wantCode(t, err, codes.NotFound)
	_, err = OpenSource("a\x00b", SourceOptions{})
	wantCode(t, err, codes.InvalidArgument)
}

func TestCancellationBetweenBatches(t *testing.T) {
	at := uint64(0)
	cursor := mustSource(t, &scripted{next: func(offsets, lengths []uint64) (int, uint64, error) {
		at += 4096
		offsets[0], lengths[0] = at-4096, 4096
		return 1, at, nil
	}})
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	for _, err := range cursor.Batches(ctx) {
		if !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
		wantCode(t, err, codes.Canceled)
		break
	}
	// Nothing was lost.
	if found := readAll(t, cursor); len(found) == 0 || found[len(found)-1].End() != mebi {
		t.Errorf("found %v", found)
	}
}

func TestMemory(t *testing.T) {
	base, target := make([]byte, 65536), make([]byte, 65536)
	target[5000], target[40000] = 1, 1
	cursor, err := FromPinnedMemory(base, target, 4096)
	if err != nil {
		t.Fatal(err)
	}
	want := []Extent{{4096, 4096}, {36864, 4096}}
	if found := readAll(t, cursor); !reflect.DeepEqual(found, want) {
		t.Errorf("found %v", found)
	}
	cursor.Close()
	mapped, err := syscall.Mmap(-1, 0, 65536, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_ANON|syscall.MAP_PRIVATE)
	if err != nil {
		t.Fatal(err)
	}
	copy(mapped, target)
	cursor, err = FromPinnedMemory(nil, mapped, 4096)
	if err != nil {
		t.Fatal(err)
	}
	if found := readAll(t, cursor); !reflect.DeepEqual(found, want) {
		t.Errorf("found %v in mapped memory", found)
	}
	cursor.Close()
	syscall.Munmap(mapped)
	_, err = FromPinnedMemory(base, target[1:], 4096)
	wantCode(t, err, codes.InvalidArgument)
}

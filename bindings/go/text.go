package cbt

// #include <stdlib.h>
// #include "shim.h"
import "C"

import (
	"strings"
	"unsafe"

	"google.golang.org/grpc/codes"
)

// text is a string in C's memory.
type text struct{ c *C.char }

func newText(value string) (text, error) {
	if strings.IndexByte(value, 0) >= 0 {
		return text{}, &Error{codes.InvalidArgument, "a text contains a NUL"}
	}
	return text{C.CString(value)}, nil
}

// orNull is NULL for the empty text.
func (t text) orNull() *C.char {
	if *t.c == 0 {
		return nil
	}
	return t.c
}

func (t text) free() { C.free(unsafe.Pointer(t.c)) }

func texts(values ...string) (made []text, free func(), err error) {
	free = func() {
		for _, each := range made {
			each.free()
		}
	}
	for _, value := range values {
		each, err := newText(value)
		if err != nil {
			free()
			return nil, nil, err
		}
		made = append(made, each)
	}
	return made, free, nil
}

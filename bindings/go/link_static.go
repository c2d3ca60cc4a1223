//go:build cbt_static

package cbt

// In a file of its own: Go's build cache does not compare what pkg-config answers.

// #cgo pkg-config: cbt-c-static
import "C"

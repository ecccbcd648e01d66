package vfs

// Overlay is a tree that starts as base and keeps every change in memory; base is never written, not even locked. It
// lets the real recovery run over files that must not change by a byte.
//
// Content is copied by pages of 64 KiB and only where it is changed: appending to a file of 1 GiB or cutting it copies
// at most one page. Renames, removals and new names are kept in memory too.
//
// Lock is granted if nobody else holds it on this overlay, whoever holds it on base. Map passes an unchanged file on to
// base, copies a file created here, and is ErrUnsupported for a file of base that was changed here. Sync makes nothing
// durable.
//
// Base should not be changed by others meanwhile: a directory is listed and a file measured when they are first used,
// and a file that has become shorter since then reads as io.ErrUnexpectedEOF.
func Overlay(base FS) FS { return newTree(base) }

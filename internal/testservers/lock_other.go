//go:build !(linux || darwin || freebsd || netbsd || openbsd || dragonfly)

package testservers

import "os"

// No lock: scripts/services does not run here either, so no test does harm to a
// server that it could share.
func lockFile(*os.File, bool) error { return nil }

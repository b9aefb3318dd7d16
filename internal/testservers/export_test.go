package testservers

// SetShort says what the package takes -short to be, until undo.
func SetShort(on bool) (undo func()) {
	old := short
	short = func() bool { return on }
	return func() { short = old }
}

package memory

// A rule of the protocol that a test can switch off, to show that the conformance
// suite notices. In every other use all rules are on.
type rule int

const none rule = iota

// without reports whether r is switched off.
func (db *Database) without(r rule) bool { return db.off == r }

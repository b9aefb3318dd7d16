// Package conformance judges implementations of the contracts of Outward. The
// author of a dialect writes one test:
//
//	func TestConformance(t *testing.T) {
//		conformance.TestStore(t, func(t *testing.T) *suite.StoreSubject {
//			table := newTable(t) // fresh, empty, dropped by t.Cleanup
//			return &suite.StoreSubject{
//				Open:  func(t suite.T) engine.Store { … },
//				Begin: func(t suite.T) suite.Tx { … },
//				Shift: func(t suite.T, d time.Duration) { … },
//				Look:  func(t suite.T, id engine.ID) suite.Row { … },
//			}
//		})
//	}
//
// Every clause runs as a subtest named by its id, on a subject of its own. All of
// them run unless one is waived by id with a reason; a clause for which the subject
// lacks a hook or the store an ability is skipped as NOT CHECKED, and the last line
// counts what ran and what did not. The clauses themselves are in package suite.
//
// The package imports nothing but the standard library and Outward's contracts.
package conformance

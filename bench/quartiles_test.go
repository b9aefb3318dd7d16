package main

import "testing"

func TestQuartiles(t *testing.T) {
	q1, m, q3 := quartiles([]float64{5, 1, 4, 2, 3})
	if q1 != 2 || m != 3 || q3 != 4 {
		t.Errorf("of 1 to 5: %v %v %v", q1, m, q3)
	}
	if q1, m, q3 := quartiles([]float64{7}); q1 != 7 || m != 7 || q3 != 7 {
		t.Errorf("of one: %v %v %v", q1, m, q3)
	}
	if unstable([]float64{100, 101, 102, 99, 98}) || !unstable([]float64{100, 130, 70, 100, 60}) {
		t.Error("a spread of 2 % is unstable, or one of 30 % is not")
	}
}

package sqlite
import ("testing";"strings";"fmt")
func TestZZ(t *testing.T) {
	d := newDatabase(t, nil)
	d.fill(3000, 100)
	d.exec("ANALYZE")
	s := d.open()
	for _, q := range s.q.all() {
		switch q.name { case "begin","commit","rollback": continue }
		args := []any{}
		for i := 1; strings.Contains(q.sql, fmt.Sprintf("?%d", i)); i++ { args = append(args, "[1,2]") }
		rows, err := d.db.Query("EXPLAIN QUERY PLAN "+q.sql, args...)
		if err != nil { t.Error(q.name, err); continue }
		fmt.Println("==", q.name)
		for rows.Next() { var a,b,c int; var s string; rows.Scan(&a,&b,&c,&s); fmt.Println("  ", a, b, s) }
		rows.Close()
	}
}

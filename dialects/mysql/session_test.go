package mysql

import (
	"database/sql"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/outward-dev/outward/engine"
)

// However the application opens its connections, messages come as they went in.
func TestHoweverItIsOpened(t *testing.T) {
	at := time.Date(2026, 2, 3, 4, 5, 6, 789_012_000, time.UTC)
	const isolation = "transaction_isolation"
	each(t, func(t *testing.T, d *database) {
		mariadb10 := strings.HasPrefix(one[string](d, `SELECT VERSION()`), "10.")
		for _, params := range [][]string{
			nil, {"clientFoundRows=true"}, {"interpolateParams=true"}, {"loc=" + url.QueryEscape("America/New_York")},
			{"time_zone=" + url.QueryEscape("'+09:00'")}, {"time_zone=" + url.QueryEscape("'-05:00'"), "loc=Local"},
			{"sql_mode=" + url.QueryEscape("'ANSI_QUOTES,NO_BACKSLASH_ESCAPES,PIPES_AS_CONCAT,NO_UNSIGNED_SUBTRACTION'")},
			{"sql_mode=" + url.QueryEscape("'ANSI,TRADITIONAL'")}, {"sql_mode=''"}, {"columnsWithAlias=true"}, {"parseTime=false"},
			{"collation=utf8mb4_unicode_ci"}, {isolation + "='SERIALIZABLE'"}, {"maxAllowedPacket=0"},
		} {
			if len(params) > 0 && params[0] == isolation+"='SERIALIZABLE'" && mariadb10 {
				params[0] = "tx_isolation='SERIALIZABLE'" // its older name
			}
			db := d.connect(params...)
			s := d.store(db)
			m := engine.Message{Topic: "t ", Key: "K\\'\"", Type: "a.v1", AggregateID: "Ä", AggregateVersion: 7, Headers: map[string]string{"h": `q"\'`},
				Payload: []byte("\x00\xff'\\"), OccurredAt: at}
			var ids []engine.ID
			err := d.w.InTxOptions(t.Context(), db, &sql.TxOptions{}, func(tx *Tx) (err error) {
				ids, err = d.w.Enqueue(t.Context(), tx, m, msg("t", "second"), msg("t", "second"))
				return err
			})
			if err != nil {
				t.Errorf("%v: %v", params, err)
				continue
			}
			c := d.claim(s, req(10))
			if len(c) != 3 || c[0].ID != ids[0] || c[0].Topic != m.Topic || c[0].Key != m.Key || c[0].AggregateID != "Ä" || c[0].AggregateVersion != 7 ||
				c[0].Headers["h"] != m.Headers["h"] || string(c[0].Payload) != string(m.Payload) || !c[0].OccurredAt.Equal(at) {
				t.Errorf("%v: claimed %+v", params, c)
				continue
			}
			if age := time.Since(c[0].CreatedAt).Abs(); age > time.Minute {
				t.Errorf("%v: created %v ago", params, age)
			}
			d.settle(s, 0, engine.MarkPublished(c[0].Receipt), engine.Reschedule(c[1].Receipt, time.Hour, engine.Fault{}, engine.RescheduleOptions{HoldKey: true}), engine.Release(c[2].Receipt))
			if got := d.claim(s, req(10)); len(got) != 0 {
				t.Errorf("%v: %d behind one that waits", params, len(got))
			}
			d.shift(2 * time.Hour)
			c = d.claim(s, req(10))
			if len(c) != 1 || c[0].ID != ids[1] {
				t.Errorf("%v: after the wait %+v", params, c)
				continue
			}
			d.settle(s, 0, engine.MarkPublished(c[0].Receipt))
			c = d.claim(s, req(10))
			if len(c) != 1 || c[0].ID != ids[2] {
				t.Errorf("%v: in the end %+v", params, c)
				continue
			}
			d.settle(s, 0, engine.MarkPublished(c[0].Receipt))
			for _, f := range s.Check(t.Context()) {
				if f.Level == engine.Fatal {
					t.Errorf("%v: %s: %s", params, f.Code, f.Text)
				}
			}
		}
	})
}

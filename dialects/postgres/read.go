package postgres

import (
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/outward-dev/outward/dialects/internal/reading"
	"github.com/outward-dev/outward/engine"
)

func uuidOf(id engine.ID) pgtype.UUID { return pgtype.UUID{Bytes: id, Valid: true} }

// scan reads the result of readSQL.
func (r *look) scan(rows pgx.Rows) error {
	r.rows = r.rows[:0]
	// Made once, not for each row: they would be the larger part of what a claim allocates.
	var (
		one     reading.Row
		id      pgtype.UUID
		b       reading.Body
		created *time.Time
		failing int64
	)
	m := &one.Message
	columns := []any{&one.Receipt.Seq, &one.Lane, &one.Stamp, &id, &m.Topic, &m.Key, &m.Type,
		&m.AggregateType, &m.AggregateID, &m.AggregateVersion,
		&m.CorrelationID, &m.ContentType, &b.Headers, &b.Payload, &b.Text, &b.Occurred, &created,
		&one.Attempts, &one.Crashes, &one.Resends, &one.Company, &one.Later, &failing, &one.Low, &one.Size}
	for rows.Next() {
		one, b = reading.Row{}, reading.Body{}
		if err := rows.Scan(columns...); err != nil {
			return err
		}
		m.ID = id.Bytes
		one.Receipt.Scope = reading.Scope(one.Lane, one.Stamp)
		one.FailingFor = time.Duration(failing) * time.Microsecond
		if !r.ahead {
			one.Bad = reading.Decode(m, b)
		}
		if created != nil {
			one.CreatedAt = created.UTC()
		}
		r.rows = append(r.rows, one)
	}
	return rows.Err()
}

package sqlite

import (
	"database/sql"
	"errors"
	"time"

	"github.com/outward-dev/outward/dialects/internal/reading"
	"github.com/outward-dev/outward/engine"
)

// whole is a column of a foreign writer's where it is the whole number that it
// should be. SQLite keeps whatever it is given unless a CHECK refuses it, and CHECKs
// can be switched off.
func whole(column string) string {
	return "CASE WHEN typeof(" + column + ") = 'integer' THEN " + column + " END"
}

// content is what of a row a foreign writer may have got wrong, as it is scanned.
type content struct {
	id            string
	headers, text *string
	some          bool // there is a payload, maybe an empty one, which the driver shows as none
	payload       []byte
	occurred      *int64
}

// decode fills in m; its error is the row's fault.
func (c *content) decode(m *engine.Message) error {
	if c.some && c.payload == nil {
		c.payload = []byte{}
	}
	err := reading.Decode(m, reading.Body{Headers: c.headers, Payload: c.payload, Text: c.text, Occurred: instant(c.occurred)})
	id, perr := engine.ParseID(c.id)
	if perr != nil {
		return errors.Join(errors.New("row can't be decoded: message_id is not the text of a UUID"), err)
	}
	m.ID = id
	return err
}

// scanRow reads one row of readSQL.
func scanRow(rows *sql.Rows, into *[]reading.Row) error {
	var (
		one     reading.Row
		c       content
		created *int64
		failing int64
	)
	m := &one.Message
	if err := rows.Scan(&one.Receipt.Seq, &one.Lane, &one.Stamp, &c.id, &m.Topic, &m.Key, &m.Type,
		&m.AggregateType, &m.AggregateID, &m.AggregateVersion,
		&m.CorrelationID, &m.ContentType, &c.headers, &c.some, &c.payload, &c.text, &c.occurred, &created,
		&one.Attempts, &one.Crashes, &one.Resends, &one.Company, &one.Later, &failing, &one.Low, &one.Own, &one.Size); err != nil {
		return err
	}
	one.Receipt.Scope = reading.Scope(one.Lane, one.Stamp)
	one.FailingFor = time.Duration(failing) * time.Microsecond
	if at := instant(created); at != nil {
		one.CreatedAt = *at
	}
	one.Bad = c.decode(m)
	*into = append(*into, one)
	return nil
}

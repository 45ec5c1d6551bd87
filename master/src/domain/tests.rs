//! Tests of the whole domain: the table's invariants, walks, and properties of `decide`.

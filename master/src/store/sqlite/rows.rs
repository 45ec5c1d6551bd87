//! From columns to values, and back. A value that can't be is an error that names table, column and id.

use std::{fmt::Display, str::FromStr};

use serde::{Serialize, de::DeserializeOwned};
use sqlx::{ColumnIndex, Row, Sqlite, sqlite::SqliteRow};

use crate::{domain::time::Timestamp, store::Error};

/// The columns of one row of one table.
pub(super) struct Columns<'r> {
    row: &'r SqliteRow,
    table: &'static str,
    /// The column that names the row in errors.
    key: &'static str,
}

impl<'r> Columns<'r> {
    pub(super) fn new(row: &'r SqliteRow, table: &'static str, key: &'static str) -> Self {
        Self { row, table, key }
    }

    pub(super) fn corrupt(&self, column: &'static str, reason: impl Display) -> Error {
        let id = self
            .row
            .try_get_unchecked::<String, _>(self.key)
            .unwrap_or_else(|_| "a row without a key".to_owned());
        corrupt(self.table, column, id, reason)
    }

    fn get<T>(&self, column: &'static str) -> Result<T, Error>
    where
        T: for<'a> sqlx::Decode<'a, Sqlite> + sqlx::Type<Sqlite>,
        &'static str: ColumnIndex<SqliteRow>,
    {
        self.row
            .try_get(column)
            .map_err(|error| self.corrupt(column, error))
    }

    pub(super) fn text(&self, column: &'static str) -> Result<String, Error> {
        self.get(column)
    }

    pub(super) fn text_option(&self, column: &'static str) -> Result<Option<String>, Error> {
        self.get(column)
    }

    /// A value that has one text form: an id, a commit, a name of an enum.
    pub(super) fn parsed<T>(&self, column: &'static str) -> Result<T, Error>
    where
        T: FromStr<Err: Display>,
    {
        self.text(column)?
            .parse()
            .map_err(|error| self.corrupt(column, error))
    }

    pub(super) fn parsed_option<T>(&self, column: &'static str) -> Result<Option<T>, Error>
    where
        T: FromStr<Err: Display>,
    {
        self.text_option(column)?
            .map(|text| text.parse().map_err(|error| self.corrupt(column, error)))
            .transpose()
    }

    pub(super) fn number<T>(&self, column: &'static str) -> Result<T, Error>
    where
        T: TryFrom<i64, Error: Display>,
    {
        let value: i64 = self.get(column)?;
        T::try_from(value).map_err(|error| self.corrupt(column, format_args!("{value}: {error}")))
    }

    pub(super) fn number_option<T>(&self, column: &'static str) -> Result<Option<T>, Error>
    where
        T: TryFrom<i64, Error: Display>,
    {
        let value: Option<i64> = self.get(column)?;
        value
            .map(|value| {
                T::try_from(value)
                    .map_err(|error| self.corrupt(column, format_args!("{value}: {error}")))
            })
            .transpose()
    }

    pub(super) fn flag(&self, column: &'static str) -> Result<bool, Error> {
        match self.get::<i64>(column)? {
            0 => Ok(false),
            1 => Ok(true),
            other => Err(self.corrupt(column, format_args!("{other} is neither 0 nor 1"))),
        }
    }

    pub(super) fn instant(&self, column: &'static str) -> Result<Timestamp, Error> {
        self.get(column).map(Timestamp)
    }

    pub(super) fn instant_option(&self, column: &'static str) -> Result<Option<Timestamp>, Error> {
        Ok(self.get::<Option<i64>>(column)?.map(Timestamp))
    }

    pub(super) fn json<T: DeserializeOwned>(&self, column: &'static str) -> Result<T, Error> {
        serde_json::from_str(&self.text(column)?).map_err(|error| self.corrupt(column, error))
    }
}

pub(super) fn corrupt(
    table: &'static str,
    column: &'static str,
    id: impl Display,
    reason: impl Display,
) -> Error {
    Error::Corrupt {
        table,
        column,
        id: id.to_string(),
        reason: reason.to_string(),
    }
}

/// The values of one row that is to be written.
pub(super) struct Values<'a> {
    pub(super) table: &'static str,
    pub(super) id: &'a (dyn Display + Sync),
}

impl Values<'_> {
    /// SQLite's integers end at 2^63 - 1.
    pub(super) fn number(&self, column: &'static str, value: u64) -> Result<i64, Error> {
        i64::try_from(value).map_err(|_| {
            corrupt(
                self.table,
                column,
                self.id,
                format_args!("{value}: too large"),
            )
        })
    }

    pub(super) fn json<T: Serialize>(
        &self,
        column: &'static str,
        value: &T,
    ) -> Result<String, Error> {
        serde_json::to_string(value).map_err(|error| corrupt(self.table, column, self.id, error))
    }
}

/// A number to look for. One that can't be stored becomes one that no row has.
pub(super) fn wanted(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(-1)
}

/// The number after which to list. After one that can't be stored there is nothing.
pub(super) fn after(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// The id after which to list; `None` is before the first.
pub(super) fn after_id<T: Display>(id: Option<T>) -> String {
    id.map(|id| id.to_string()).unwrap_or_default()
}

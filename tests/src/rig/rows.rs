//! Rows as no version of ours would write them.

use sqlx::{Connection, SqliteConnection, sqlite::SqliteConnectOptions};

use super::Rig;

impl Rig {
    /// Runs a statement on the database behind the store's back; `?` stands for `argument`.
    pub async fn corrupt(&self, statement: &'static str, argument: &str) {
        let options = SqliteConnectOptions::new().filename(self.database());
        let mut connection = SqliteConnection::connect_with(&options)
            .await
            .expect("the database opens a second time");
        let done = sqlx::query(statement)
            .bind(argument.to_owned())
            .execute(&mut connection)
            .await
            .expect("the statement is taken");
        assert_eq!(done.rows_affected(), 1, "it changes one row");
        connection.close().await.expect("it closes");
    }
}

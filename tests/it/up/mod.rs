//! `pointsman up`, as a person runs it on a repository of their own.

mod life;
mod person;
mod refusals;
mod repositories;

"""The tables of the month as an Airflow DAG: tried again after a failure, since what was paid for is free."""

from __future__ import annotations

from datetime import datetime, timedelta

from airflow import DAG
from airflow.operators.bash import BashOperator

FOLDER = "/srv/statistics"  # where office.toml, the specs and the ledger are

with DAG(
    dag_id="tables_of_the_month",
    schedule="0 5 2 * *",
    start_date=datetime(2026, 1, 1),
    catchup=False,
    max_active_runs=1,
    default_args={"retries": 3, "retry_delay": timedelta(hours=1)},
) as dag:
    dry = BashOperator(task_id="dry_run", cwd=FOLDER, bash_command="sfumato run office.toml --dry-run")
    publish = BashOperator(task_id="publish", cwd=FOLDER, bash_command="sfumato run office.toml --log-json")
    verify = BashOperator(task_id="verify", cwd=FOLDER, bash_command="sfumato ledger verify budget.db")
    dry >> publish >> verify

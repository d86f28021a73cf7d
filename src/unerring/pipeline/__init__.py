"""The data pipeline on Spark. Import its modules where they are needed: this one loads nothing."""

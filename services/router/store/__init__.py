"""What is durable of jobs: their records and their logs in JetStream, written once and in order."""

"""What all APIs share: kinds of fields, how a request becomes a job, and how errors are told."""
